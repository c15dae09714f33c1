/* What a signal does to a thread that waits for an event: what it does to one in read(). Prints every surprise. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int surprises;
static atomic_int handled, returned, tid;
static int result, error;

/* Long enough for a loaded machine; nothing waits for it to pass unless it fails. */
#define PATIENCE 20000

#define UNTIL(what)                                                                                                  \
    do {                                                                                                             \
        int left = PATIENCE;                                                                                         \
        while (!(what) && --left)                                                                                    \
            usleep(1000);                                                                                            \
        if (!left) {                                                                                                 \
            printf("line %d: it never came: %s\n", __LINE__, #what);                                                 \
            surprises++;                                                                                             \
        }                                                                                                            \
    } while (0)

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: not so: %s (result %d, error %d)\n", __LINE__, #what, result, error);                   \
            surprises++;                                                                                             \
        }                                                                                                            \
    } while (0)

static void handler(int number) {
    (void)number;
    handled++;
}

static void handle(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
}

static void *wait_for_completion(void *channel) {
    struct ibv_cq *cq = NULL;
    void *context;
    tid = (int)syscall(SYS_gettid);
    result = ibv_get_cq_event(channel, &cq, &context);
    error = errno;
    if (!result)
        ibv_ack_cq_events(cq, 1);
    returned = 1;
    return NULL;
}

static void *wait_for_event(void *context) {
    struct ibv_async_event event;
    tid = (int)syscall(SYS_gettid);
    result = ibv_get_async_event(context, &event);
    error = errno;
    if (!result)
        ibv_ack_async_event(&event);
    returned = 1;
    return NULL;
}

/* Whether the thread waits in read() of this descriptor. */
static int waits(int fd) {
    char path[64], line[128] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    long number = -1;
    unsigned long of = 0;
    int is_so = fgets(line, sizeof line, file) && sscanf(line, "%ld %lx", &number, &of) == 2;
    fclose(file);
    return is_so && number == SYS_read && of == (unsigned long)fd;
}

static pthread_t start(void *(*body)(void *), void *argument, int fd) {
    pthread_t thread;
    handled = returned = tid = 0;
    result = error = 0;
    pthread_create(&thread, NULL, body, argument);
    UNTIL(tid && waits(fd));
    return thread;
}

/* Signals a waiting thread with and without SA_RESTART; `happen` makes the event come. */
static void try(void *(*body)(void *), void *argument, int fd, void (*happen)(void *), void *of) {
    handle(0);
    pthread_t thread = start(body, argument, fd);
    pthread_kill(thread, SIGUSR1);
    UNTIL(returned);
    pthread_join(thread, NULL);
    CHECK(result == -1 && error == EINTR && handled == 1);

    handle(SA_RESTART);
    thread = start(body, argument, fd);
    for (int round = 1; round <= 5; round++) {
        pthread_kill(thread, SIGUSR1);
        UNTIL(handled == round);
        UNTIL(waits(fd));
        CHECK(!returned);
    }
    happen(of);
    UNTIL(returned);
    pthread_join(thread, NULL);
    CHECK(result == 0);
}

/* Its receive is flushed, and the completion queue tells. */
static void fail_receive(void *qp) {
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ibv_post_recv(qp, &receive, &bad);
    ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* Its shared receive queue has nothing more for it, and the device tells. */
static void fail_shared(void *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static struct ibv_qp *queue_pair(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (!qp || ibv_modify_qp(qp, &attr, mask)) {
        printf("no queue pair: %d\n", errno);
        surprises++;
    }
    return qp;
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (!ctx) {
        perror("ibv_open_device");
        return 1;
    }
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, channel, 0);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_qp *one = queue_pair(pd, cq, NULL), *two = queue_pair(pd, cq, srq);
    ibv_req_notify_cq(cq, 0);
    try(wait_for_completion, channel, channel->fd, fail_receive, one);
    try(wait_for_event, ctx, ctx->async_fd, fail_shared, two);
    ibv_destroy_qp(one);
    ibv_destroy_qp(two);
    ibv_destroy_srq(srq);
    ibv_destroy_cq(cq);
    ibv_destroy_comp_channel(channel);
    ibv_dealloc_pd(pd);
    ibv_close_device(ctx);
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
