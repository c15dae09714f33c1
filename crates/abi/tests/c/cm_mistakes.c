/* What programs do wrong with ids, events and channels, and the error number that each mistake gets. Prints every
   surprise. A second that passes without what is waited for ends the program, and says what it was. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int surprises;

#define FAILS(call, expected)                                                                                        \
    do {                                                                                                             \
        errno = 0;                                                                                                   \
        int got = (call);                                                                                            \
        if (got != -1 || errno != (expected)) {                                                                      \
            printf("%d: %s: %d with errno %d, not %d\n", __LINE__, #call, got, errno, (expected));                   \
            surprises++;                                                                                             \
        }                                                                                                            \
    } while (0)

#define WORKS(call)                                                                                                  \
    do {                                                                                                             \
        if (call) {                                                                                                  \
            printf("%d: %s: errno %d\n", __LINE__, #call, errno);                                                    \
            surprises++;                                                                                             \
        }                                                                                                            \
    } while (0)

static struct sockaddr_in address;

static struct sockaddr *at(int port)
{
    address.sin_port = htons(port);
    return (struct sockaddr *)&address;
}

/* The next event, which must be of this kind. */
static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type kind, int line)
{
    struct pollfd poller = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&poller, 1, 15000) != 1 || rdma_get_cm_event(channel, &event)) {
        printf("%d: waited for %s\n", line, rdma_event_str(kind));
        exit(1);
    }
    if (event->event != kind) {
        printf("%d: %s with %d, not %s\n", line, rdma_event_str(event->event), event->status, rdma_event_str(kind));
        surprises++;
    }
    return event;
}
#define NEXT(channel, kind) next(channel, kind, __LINE__)

static struct rdma_cm_id *listener_on(struct rdma_event_channel *channel, int port, int backlog)
{
    struct rdma_cm_id *id;
    WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    WORKS(rdma_bind_addr(id, at(port)));
    WORKS(rdma_listen(id, backlog));
    return id;
}

/* An id that knows its way, and has no queue pair. */
static struct rdma_cm_id *client_without(struct rdma_event_channel *channel, int port)
{
    struct rdma_cm_id *id;
    WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    WORKS(rdma_resolve_addr(id, NULL, at(port), 2000));
    rdma_ack_cm_event(NEXT(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    WORKS(rdma_resolve_route(id, 2000));
    rdma_ack_cm_event(NEXT(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    return id;
}

/* An id that may connect. */
static struct rdma_cm_id *client_to(struct rdma_event_channel *channel, int port)
{
    struct rdma_cm_id *id = client_without(channel, port);
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
    WORKS(rdma_create_qp(id, NULL, &attr));
    return id;
}

static struct rdma_cm_id *destroyed_late;
static atomic_int is_destroyed;

static void *destroy(void *unused)
{
    (void)unused;
    WORKS(rdma_destroy_id(destroyed_late));
    is_destroyed = 1;
    return NULL;
}

static atomic_int waiter;

static void *waits_for_an_event(void *channel)
{
    struct rdma_cm_event *event;
    waiter = gettid();
    rdma_get_cm_event(channel, &event);
    return NULL;
}

/* Whether a thread sleeps. */
static int sleeps(int thread)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (file)
        fclose(file);
    return state == 'S';
}

/* A thread that waits for events of a channel, while another destroys it, never hears of one again. */
static void destroys_a_channel_under_a_thread(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    pthread_t thread;
    void *end = NULL;
    uint64_t one = 1;
    int same = dup(channel->fd);
    WORKS(pthread_create(&thread, NULL, waits_for_an_event, channel));
    while (!waiter || !sleeps(waiter))
        sched_yield();
    rdma_destroy_event_channel(channel);
    /* It wakes, as for an event that went with its id, and goes on waiting. */
    WORKS(write(same, &one, sizeof one) != sizeof one);
    struct pollfd poller = {.fd = same, .events = POLLIN};
    while (poll(&poller, 1, 0) == 1)
        sched_yield();
    WORKS(pthread_cancel(thread));
    WORKS(pthread_join(thread, &end));
    WORKS(end != PTHREAD_CANCELED);
    close(same);
}

int main(int argc, char **argv)
{
    address.sin_family = AF_INET;
    inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_event_channel *other = rdma_create_event_channel();
    struct rdma_cm_event *event;
    struct rdma_cm_id *id, *second;
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    char bytes[256] = "some bytes";

    /* What is none. */
    FAILS(rdma_create_id(channel, &id, NULL, 0x7777), EINVAL);
    FAILS(rdma_create_id((void *)bytes, &id, NULL, RDMA_PS_TCP), EINVAL);
    FAILS(rdma_ack_cm_event(NULL), EINVAL);
    FAILS(rdma_get_cm_event(channel, NULL), EINVAL);
    FAILS(rdma_listen((void *)bytes, 1), EINVAL);
    FAILS(rdma_destroy_id(NULL), EINVAL);

    /* An id is used after its end, and events are acknowledged twice. */
    WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    FAILS(rdma_bind_addr(id, NULL), EINVAL);
    FAILS(rdma_resolve_route(id, 100), EINVAL);
    FAILS(rdma_connect(id, &param), EINVAL);
    FAILS(rdma_accept(id, &param), EINVAL);
    FAILS(rdma_disconnect(id), EINVAL);
    FAILS(rdma_establish(id), EINVAL);
    FAILS(rdma_get_request(id, &second), EINVAL);
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, bytes, 3), EINVAL);
    FAILS(rdma_set_option(id, 9, 9, bytes, 1), ENOSYS);
    WORKS(rdma_destroy_id(id));
    FAILS(rdma_destroy_id(id), EINVAL);
    FAILS(rdma_bind_addr(id, at(7001)), EINVAL);
    id = client_to(channel, 7001);
    WORKS(rdma_connect(id, &param));
    event = NEXT(channel, RDMA_CM_EVENT_REJECTED);
    if (event->status != 8)
        printf("a port without a listener: %d\n", event->status), surprises++;
    WORKS(rdma_ack_cm_event(event));
    FAILS(rdma_ack_cm_event(event), EINVAL);
    FAILS(rdma_connect(id, &param), EINVAL);
    rdma_destroy_qp(id);
    WORKS(rdma_destroy_id(id));

    /* A busy port. */
    struct rdma_cm_id *listener = listener_on(channel, 7002, 2);
    WORKS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    FAILS(rdma_bind_addr(id, at(7002)), EADDRINUSE);
    address.sin_addr.s_addr = 0;
    FAILS(rdma_bind_addr(id, at(7002)), EADDRNOTAVAIL);
    inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr);
    FAILS(rdma_listen(listener, 2), EINVAL);
    WORKS(rdma_destroy_id(id));

    /* Private data that are too long; a rejection with as many as there may be. */
    id = client_to(other, 7002);
    param.private_data = bytes;
    param.private_data_len = 57;
    FAILS(rdma_connect(id, &param), EINVAL);
    param.private_data_len = 56;
    param.responder_resources = 200;
    FAILS(rdma_connect(id, &param), EINVAL);
    param.responder_resources = 1;
    WORKS(rdma_connect(id, &param));
    event = NEXT(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    if (event->listen_id != listener || event->param.conn.private_data_len != 56 ||
        strcmp(event->param.conn.private_data, bytes))
        printf("the request is not what was sent\n"), surprises++;
    struct rdma_cm_id *request = event->id;
    FAILS(rdma_reject(request, bytes, 149), EINVAL);
    WORKS(rdma_reject(request, bytes, 148));
    FAILS(rdma_reject(request, bytes, 1), EINVAL);
    FAILS(rdma_accept(request, NULL), EINVAL);

    /* The end of the listener waits for its event. */
    destroyed_late = listener;
    pthread_t thread;
    pthread_create(&thread, NULL, destroy, NULL);
    usleep(200000);
    if (is_destroyed)
        printf("the listener went before its event was acknowledged\n"), surprises++;
    WORKS(rdma_ack_cm_event(event));
    pthread_join(thread, NULL);
    WORKS(rdma_destroy_id(request));
    event = NEXT(other, RDMA_CM_EVENT_REJECTED);
    if (event->status != 28 || event->param.conn.private_data_len != 148)
        printf("rejected with %d and %d bytes\n", event->status, event->param.conn.private_data_len), surprises++;
    WORKS(rdma_ack_cm_event(event));
    rdma_destroy_qp(id);
    WORKS(rdma_destroy_id(id));

    /* Three ask where two may wait: the third asks again, and is heard when there is room. */
    listener = listener_on(channel, 7003, 2);
    struct rdma_cm_id *asking[3];
    for (int i = 0; i < 3; i++) {
        asking[i] = client_to(other, 7003);
        WORKS(rdma_connect(asking[i], &param));
    }
    struct rdma_cm_id *asked[3];
    for (int i = 0; i < 3; i++) {
        event = NEXT(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        asked[i] = event->id;
        WORKS(rdma_ack_cm_event(event));
    }
    for (int i = 0; i < 3; i++) {
        struct ibv_qp_init_attr attr = {
            .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
            .qp_type = IBV_QPT_RC};
        request = asked[i];
        WORKS(rdma_create_qp(request, NULL, &attr));
        WORKS(rdma_accept(request, NULL));
        WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_ESTABLISHED)));
        event = NEXT(channel, RDMA_CM_EVENT_ESTABLISHED);
        if (i == 0) {
            /* Moves with what is to be told of it. */
            FAILS(rdma_notify(request, IBV_EVENT_COMM_EST), EISCONN);
            WORKS(rdma_ack_cm_event(event));
            WORKS(rdma_migrate_id(request, other));
            WORKS(rdma_disconnect(request));
            for (int j = 0; j < 2; j++)
                WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_DISCONNECTED)));
            for (int j = 0; j < 2; j++)
                WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_TIMEWAIT_EXIT)));
            WORKS(rdma_disconnect(request));
        } else {
            WORKS(rdma_ack_cm_event(event));
        }
        rdma_destroy_qp(request);
        WORKS(rdma_destroy_id(request));
        if (i > 0)
            WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_DISCONNECTED)));
    }

    for (int i = 0; i < 3; i++) {
        rdma_destroy_qp(asking[i]);
        WORKS(rdma_destroy_id(asking[i]));
    }

    /* Of an id that is destroyed nothing is told, also when its connection is forgotten. */
    struct pollfd poller = {.fd = other->fd, .events = POLLIN};
    if (poll(&poller, 1, 1500)) {
        event = NULL;
        WORKS(rdma_get_cm_event(other, &event));
        printf("%s of an id that is no more\n", event ? rdma_event_str(event->event) : "nothing");
        surprises++;
    }

    /* What a call that failed made is gone, and the attributes do not name it. */
    id = client_without(other, 7003);
    struct ibv_qp_init_attr greedy = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 1 << 30},
        .qp_type = IBV_QPT_RC};
    FAILS(rdma_create_qp(id, NULL, &greedy), EINVAL);
    WORKS(greedy.send_cq || greedy.recv_cq || id->send_cq || id->recv_cq || id->qp);
    greedy.cap.max_inline_data = 0;
    WORKS(rdma_create_qp(id, NULL, &greedy));
    rdma_destroy_qp(id);
    WORKS(rdma_destroy_id(id));

    /* Two ids may have a port, but one that listens has it for itself. */
    struct rdma_cm_id *shared[2];
    for (int i = 0; i < 2; i++) {
        int reuse = 1;
        WORKS(rdma_create_id(other, &shared[i], NULL, RDMA_PS_TCP));
        WORKS(rdma_set_option(shared[i], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof reuse));
        WORKS(rdma_bind_addr(shared[i], at(7004)));
    }
    int no = 0, yes = 1;
    FAILS(rdma_listen(shared[0], 1), EADDRINUSE);
    FAILS(rdma_set_option(shared[1], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &no, sizeof no), EINVAL);
    WORKS(rdma_destroy_id(shared[1]));
    WORKS(rdma_listen(shared[0], 1));
    FAILS(rdma_set_option(shared[0], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes), EINVAL);
    FAILS(rdma_set_option(shared[0], RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes), EINVAL);
    WORKS(rdma_create_id(other, &shared[1], NULL, RDMA_PS_TCP));
    WORKS(rdma_set_option(shared[1], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
    FAILS(rdma_bind_addr(shared[1], at(7004)), EADDRINUSE);
    WORKS(rdma_bind_addr(shared[1], at(7005)));
    for (int i = 0; i < 2; i++)
        WORKS(rdma_destroy_id(shared[i]));

    /* One that allows others once it is bound. */
    for (int i = 0; i < 2; i++)
        WORKS(rdma_create_id(other, &shared[i], NULL, RDMA_PS_TCP));
    WORKS(rdma_bind_addr(shared[0], at(7005)));
    WORKS(rdma_set_option(shared[1], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
    FAILS(rdma_bind_addr(shared[1], at(7005)), EADDRINUSE);
    WORKS(rdma_set_option(shared[0], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
    WORKS(rdma_bind_addr(shared[1], at(7005)));
    for (int i = 0; i < 2; i++)
        WORKS(rdma_destroy_id(shared[i]));

    /* A port whose listener went is for the next one that wants it, on the same address or on all. */
    for (int i = 0; i < 4; i++) {
        id = listener_on(other, 7006, 1);
        WORKS(rdma_destroy_id(id));
        if (i == 1)
            address.sin_addr.s_addr = 0;
        else
            inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr);
    }

    /* An acceptance is rejected, with a reason that reaches the program on the other side. */
    struct rdma_cm_id *client = client_without(other, 7003);
    param.qp_num = 0x123456;
    WORKS(rdma_connect(client, &param));
    event = NEXT(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    request = event->id;
    WORKS(rdma_ack_cm_event(event));
    param.private_data = NULL;
    param.private_data_len = 0;
    param.qp_num = 0x123457;
    WORKS(rdma_accept(request, &param));
    WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_CONNECT_RESPONSE)));
    WORKS(rdma_reject(client, "because", 8));
    event = NEXT(channel, RDMA_CM_EVENT_REJECTED);
    WORKS(event->status != 28 || event->param.conn.private_data_len != 148);
    WORKS(strcmp(event->param.conn.private_data, "because"));
    WORKS(rdma_ack_cm_event(event));
    WORKS(rdma_destroy_id(client));
    WORKS(rdma_destroy_id(request));

    /* Ids of RDMA_PS_IB carry addresses too; an address of IPv4 in the dress of IPv6 is one of IPv4. */
    struct sockaddr_in6 dressed = {.sin6_family = AF_INET6, .sin6_port = htons(7007)};
    dressed.sin6_addr.s6_addr[10] = dressed.sin6_addr.s6_addr[11] = 0xff;
    memcpy(&dressed.sin6_addr.s6_addr[12], &address.sin_addr, 4);
    struct rdma_cm_id *ib;
    WORKS(rdma_create_id(channel, &ib, NULL, RDMA_PS_IB));
    WORKS(rdma_bind_addr(ib, (struct sockaddr *)&dressed));
    WORKS(rdma_listen(ib, 1));
    WORKS(rdma_create_id(other, &client, NULL, RDMA_PS_IB));
    WORKS(rdma_resolve_addr(client, NULL, (struct sockaddr *)&dressed, 2000));
    WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_ADDR_RESOLVED)));
    WORKS(rdma_resolve_route(client, 2000));
    WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_ROUTE_RESOLVED)));
    param.private_data = bytes;
    param.private_data_len = 11;
    WORKS(rdma_connect(client, &param));
    event = NEXT(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    WORKS(strcmp(event->param.conn.private_data, bytes));
    request = event->id;
    WORKS(rdma_get_dst_port(request) != rdma_get_src_port(client));
    WORKS(rdma_ack_cm_event(event));
    WORKS(rdma_destroy_id(request));
    WORKS(rdma_ack_cm_event(NEXT(other, RDMA_CM_EVENT_REJECTED)));
    WORKS(rdma_destroy_id(client));
    WORKS(rdma_destroy_id(ib));

    /* Of a channel that is destroyed nothing is left but ids that can be ended. */
    struct rdma_event_channel *gone = rdma_create_event_channel();
    WORKS(rdma_create_id(gone, &id, NULL, RDMA_PS_TCP));
    rdma_destroy_event_channel(gone);
    FAILS(rdma_bind_addr(id, at(7009)), EBADF);
    FAILS(rdma_resolve_addr(id, NULL, at(7009), 100), EBADF);
    FAILS(rdma_listen(id, 1), EBADF);
    WORKS(rdma_destroy_id(id));

    destroys_a_channel_under_a_thread();

    /* Nothing to fetch, and a channel that does not wait. */
    fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    FAILS(rdma_get_cm_event(channel, &event), EAGAIN);

    /* A child of a fork has none of this, and may have its own. */
    pid_t child = fork();
    if (child == 0) {
        FAILS(rdma_listen(listener, 1), EPERM);
        FAILS(rdma_get_cm_event(channel, &event), EPERM);
        WORKS(rdma_create_event_channel() == NULL);
        fflush(stdout);
        _exit(surprises);
    }
    int status;
    waitpid(child, &status, 0);
    if (status)
        printf("the child ended with %d\n", status), surprises++;

    WORKS(rdma_destroy_id(listener));
    rdma_destroy_event_channel(channel);
    FAILS(rdma_get_cm_event(channel, &event), EINVAL);
    rdma_destroy_event_channel(other);
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
