/* What programs hear of connections that come to nothing: each kind of event with its status. Prints every surprise.
   Arguments: the address of the device, and one at which nothing is. */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int surprises;

#define WORKS(call)                                                                                                  \
    do {                                                                                                             \
        if (call) {                                                                                                  \
            printf("%d: %s\n", __LINE__, #call);                                                                     \
            perror("errno");                                                                                         \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

/* The next event of a channel; what comes of a silent peer takes eight seconds. */
static struct rdma_cm_event *next(struct rdma_event_channel *channel, const char *what)
{
    struct pollfd poller = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&poller, 1, 60000) != 1) {
        printf("waited for an event: %s\n", what);
        exit(1);
    }
    WORKS(rdma_get_cm_event(channel, &event));
    return event;
}

static struct sockaddr_in at(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    return to;
}

static struct rdma_event_channel *asks(enum rdma_port_space space, const char *address, int port)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in to = at(address, port);
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = space == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD};
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    WORKS(!channel);
    WORKS(rdma_create_id(channel, &id, NULL, space));
    WORKS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    WORKS(rdma_ack_cm_event(next(channel, "the address")));
    WORKS(rdma_resolve_route(id, 2000));
    WORKS(rdma_ack_cm_event(next(channel, "the route")));
    WORKS(rdma_create_qp(id, NULL, &attr));
    WORKS(rdma_connect(id, &param));
    return channel;
}

static void hears(struct rdma_event_channel *channel, enum rdma_cm_event_type kind, int status, const char *what)
{
    struct rdma_cm_event *event = next(channel, what);
    if (event->event != kind || event->status != status) {
        printf("%s: %s with %d\n", what, rdma_event_str(event->event), event->status);
        surprises++;
    }
    WORKS(rdma_ack_cm_event(event));
}

static struct rdma_event_channel *listens(enum rdma_port_space space, const char *address, int port)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    struct sockaddr_in on = at(address, port);
    WORKS(rdma_create_id(channel, &id, NULL, space));
    WORKS(rdma_bind_addr(id, (struct sockaddr *)&on));
    WORKS(rdma_listen(id, 4));
    return channel;
}

static void rejects(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event = next(channel, "a request");
    struct rdma_cm_id *id = event->id;
    WORKS(event->event != RDMA_CM_EVENT_CONNECT_REQUEST);
    WORKS(rdma_ack_cm_event(event));
    WORKS(rdma_reject(id, "no", 3));
    WORKS(rdma_destroy_id(id));
}

int main(int argc, char **argv)
{
    WORKS(argc != 3);
    const char *here = argv[1], *nowhere = argv[2];
    struct rdma_event_channel *silent = asks(RDMA_PS_TCP, nowhere, 7001);
    struct rdma_event_channel *silent_datagrams = asks(RDMA_PS_UDP, nowhere, 7001);
    hears(asks(RDMA_PS_TCP, here, 7001), RDMA_CM_EVENT_REJECTED, 8, "no listener");
    hears(asks(RDMA_PS_UDP, here, 7001), RDMA_CM_EVENT_UNREACHABLE, 1, "no datagram service");
    struct rdma_event_channel *listener = listens(RDMA_PS_TCP, here, 7002);
    struct rdma_event_channel *asker = asks(RDMA_PS_TCP, here, 7002);
    rejects(listener);
    hears(asker, RDMA_CM_EVENT_REJECTED, 28, "rejected by the program");
    listener = listens(RDMA_PS_UDP, here, 7002);
    asker = asks(RDMA_PS_UDP, here, 7002);
    rejects(listener);
    hears(asker, RDMA_CM_EVENT_UNREACHABLE, 2, "datagrams rejected by the program");
    hears(silent, RDMA_CM_EVENT_UNREACHABLE, -110, "nothing there");
    hears(silent_datagrams, RDMA_CM_EVENT_UNREACHABLE, -110, "nothing there for datagrams");
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
