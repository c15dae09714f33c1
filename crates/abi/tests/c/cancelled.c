/* A thread that is to be cancelled calls everything but the two waits, and is still there afterwards: no call of the
 * library is a cancellation point, whatever it asks of the system. Then the next real one ends it, and the waits do.
 * Arguments: how many rounds of messages. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);                             \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static int rounds = 200;
static atomic_int reached;
static _Alignas(8) char memory[8192];

static void join(struct ibv_qp *qp, struct ibv_qp *peer) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                            .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
                             .max_dest_rd_atomic = 4, .min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1}};
    CHECK(!ibv_query_gid(qp->context, 1, 0, &a.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC));
}

static void finish(struct ibv_cq *cq, int count) {
    while (count) {
        struct ibv_wc wc;
        int n = ibv_poll_cq(cq, 1, &wc);
        CHECK(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS));
        count -= n;
    }
}

/* Everything, in a thread whose end is pending all the while. */
static void *everything(void *unused) {
    (void)unused;
    CHECK(!pthread_cancel(pthread_self()));

    /* Devices. */
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0);
    CHECK(ibv_get_device_name(list[0]) && ibv_get_device_guid(list[0]));
    struct ibv_context *ctx = ibv_open_device(list[0]);
    CHECK(ctx);
    ibv_free_device_list(list);

    /* A refusal, which is told on standard error. */
    CHECK(!ibv_open_device(NULL) && errno == EINVAL);
    struct ibv_port_attr port;
    CHECK(ibv_query_port(ctx, 7, &port) == EINVAL);

    /* Questions. */
    struct ibv_device_attr device;
    struct ibv_device_attr_ex device_ex;
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    union ibv_gid gid;
    struct ibv_gid_entry entries[4];
    __be16 pkey;
    CHECK(!ibv_query_device(ctx, &device) && !ibv_query_device_ex(ctx, NULL, &device_ex));
    CHECK(!ibv_query_port(ctx, 1, &port) && !ibv_query_gid(ctx, 1, 0, &gid));
    CHECK(!ibv_query_gid_ex(ctx, 1, 0, entries, 0) && ibv_query_gid_table(ctx, entries, 4, 0) > 0);
    CHECK(!ibv_query_pkey(ctx, 1, 0, &pkey) && ibv_get_pkey_index(ctx, 1, pkey) == 0);
    CHECK(!ibv_query_rt_values_ex(ctx, &values));
    CHECK(ibv_event_type_str(IBV_EVENT_QP_FATAL) && ibv_wc_status_str(IBV_WC_SUCCESS));
    CHECK(!ibv_fork_init());

    /* Objects. */
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, all);
    CHECK(pd && mr);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, all));
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    struct ibv_cq *cq = ibv_create_cq(ctx, 64, NULL, channel, 0);
    CHECK(channel && cq && !ibv_resize_cq(cq, 128));
    struct ibv_cq_init_attr_ex extended = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *cq_ex = ibv_create_cq_ex(ctx, &extended);
    CHECK(cq_ex);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_srq_attr limit = {.max_wr = 32};
    CHECK(srq && !ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR) && !ibv_query_srq(srq, &limit));
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid}};
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    CHECK(ah);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mw);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp *ours = ibv_create_qp(pd, &init), *theirs = ibv_create_qp(pd, &init);
    struct ibv_qp_init_attr datagrams = init;
    datagrams.qp_type = IBV_QPT_UD;
    struct ibv_qp *ud = ibv_create_qp(pd, &datagrams);
    CHECK(ours && theirs && ud);
    union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 9, [14] = 9, [15] = 9}};
    CHECK(!ibv_attach_mcast(ud, &group, 0) && !ibv_detach_mcast(ud, &group, 0));
    join(ours, theirs);
    join(theirs, ours);
    struct ibv_qp_attr asked;
    CHECK(!ibv_query_qp(ours, &asked, IBV_QP_STATE, &init));

    /* Work. */
    struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
    bind.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE};
    CHECK(!ibv_bind_mw(ours, mw, &bind));
    finish(cq, 1);
    struct ibv_sge from = {(uintptr_t)memory, 4096, mr->lkey}, into = {(uintptr_t)memory + 4096, 4096, mr->lkey};
    for (int i = 0; i < rounds; i++) {
        struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad_receive;
        CHECK(!ibv_post_recv(theirs, &receive, &bad_receive));
        CHECK(i >= 32 || !ibv_post_srq_recv(srq, &receive, &bad_receive));
        struct ibv_send_wr write = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
        write.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
        write.wr.rdma.rkey = mr->rkey;
        struct ibv_send_wr read = write, send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
        read.opcode = IBV_WR_RDMA_READ;
        write.next = &read;
        read.next = &send;
        CHECK(!ibv_req_notify_cq(cq, 0));
        CHECK(!ibv_post_send(ours, &write, &bad));
        finish(cq, 4);
        struct ibv_poll_cq_attr polled = {0};
        CHECK(ibv_start_poll(cq_ex, &polled) == ENOENT);
        /* A refusal on the way of the data. */
        send.num_sge = -1;
        send.next = NULL;
        CHECK(i > 2 || ibv_post_send(ours, &send, &bad) == EINVAL);
    }

    /* An event is there, so this does not wait. */
    struct ibv_cq *told;
    void *context;
    CHECK(!ibv_get_cq_event(channel, &told, &context) && told == cq);
    /* A fork runs handlers of the library. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child)
        _exit(0);

    /* And back. */
    unsigned events = 1;
    ibv_ack_cq_events(cq, events);
    CHECK(!ibv_destroy_qp(ours) && !ibv_destroy_qp(theirs) && !ibv_destroy_qp(ud));
    CHECK(!ibv_dealloc_mw(mw) && !ibv_destroy_ah(ah) && !ibv_destroy_srq(srq));
    CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
    reached++;
    /* Only now. */
    pthread_testcancel();
    reached++;
    return NULL;
}

static struct ibv_comp_channel *quiet;

static void *wait_for_completion(void *unused) {
    struct ibv_cq *cq;
    void *context;
    pthread_cancel(pthread_self());
    ibv_get_cq_event(quiet, &cq, &context);
    return unused;
}

static void *wait_for_event(void *unused) {
    struct ibv_async_event event;
    pthread_cancel(pthread_self());
    ibv_get_async_event(quiet->context, &event);
    return unused;
}

static void is_cancelled(void *(*body)(void *)) {
    pthread_t thread;
    void *result = NULL;
    CHECK(!pthread_create(&thread, NULL, body, NULL));
    CHECK(!pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED);
}

int main(int argc, char **argv) {
    if (argc > 1)
        rounds = atoi(argv[1]);
    is_cancelled(everything);
    CHECK(reached == 1);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    /* The waits are what they are with the kernel's library. Neither leaves a lock behind. */
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    CHECK(ctx && (quiet = ibv_create_comp_channel(ctx)));
    for (int i = 0; i < 20; i++) {
        is_cancelled(wait_for_completion);
        is_cancelled(wait_for_event);
    }
    CHECK(!ibv_destroy_comp_channel(quiet) && !ibv_close_device(ctx));
    printf("cancelled where it may be\n");
    return 0;
}
