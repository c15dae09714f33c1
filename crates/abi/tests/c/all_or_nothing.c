/* ibv_wr_complete posts all that was put together, or nothing of it. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 4
#define ROUNDS 50
#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d, round %d: not %s (errno %d)\n", __LINE__, current, #what, errno);                       \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static int current;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *sent, *received;

static struct ibv_qp *queue_pair(void) {
    struct ibv_qp_init_attr_ex init = {.send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd};
    init.cap = (struct ibv_qp_cap){.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
                                   .max_inline_data = 16};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;
    struct ibv_qp *qp = ibv_create_qp_ex(ctx, &init);
    CHECK(qp);
    return qp;
}

static void join(struct ibv_qp *qp, struct ibv_qp *peer) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
                             .min_rnr_timer = 1, .ah_attr = {.is_global = 1, .port_num = 1}};
    CHECK(!ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
    CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Puts messages with these numbers together, and with a READ behind them if it is asked for. */
static int post(struct ibv_qp_ex *qp, unsigned first, unsigned count, int read) {
    ibv_wr_start(qp);
    for (unsigned i = 0; i < count; i++) {
        qp->wr_id = first + i;
        qp->wr_flags = 0;
        ibv_wr_send_imm(qp, htonl(first + i));
        ibv_wr_set_inline_data(qp, "text", 4);
    }
    if (read) {
        qp->wr_id = 99;
        ibv_wr_rdma_read(qp, 1, 0x1000);
    }
    return ibv_wr_complete(qp);
}

static void expect(struct ibv_cq *cq, unsigned first, unsigned count, int with_imm) {
    for (unsigned i = 0; i < count; i++) {
        struct ibv_wc wc;
        int n;
        while (!(n = ibv_poll_cq(cq, 1, &wc)))
            ;
        CHECK(n == 1);
        CHECK(wc.status == IBV_WC_SUCCESS);
        CHECK((with_imm ? ntohl(wc.imm_data) : wc.wr_id) == first + i);
    }
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0] && (ctx = ibv_open_device(list[0])));
    CHECK((pd = ibv_alloc_pd(ctx)));
    CHECK((sent = ibv_create_cq(ctx, 64, NULL, NULL, 0)) && (received = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
    char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_qp *ours = queue_pair(), *theirs = queue_pair();
    join(ours, theirs);
    join(theirs, ours);
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(ours);
    CHECK(qp);
    for (current = 0; current < ROUNDS; current++) {
        /* The peer has posted no receive, so they stay where they are. */
        CHECK(post(qp, 1, 2, 0) == 0);
        /* Room for two more, and three are too many: none is posted. */
        CHECK(post(qp, 100, 3, 0) == ENOMEM);
        CHECK(post(qp, 200, DEPTH + 1, 0) == ENOMEM);
        /* The second of two cannot be, as no READ may be under way here: the first is not posted either. */
        CHECK(post(qp, 300, 1, 1) == EINVAL);
        /* So there is room. */
        CHECK(post(qp, 3, 2, 0) == 0);
        CHECK(post(qp, 400, 1, 0) == ENOMEM);
        for (int i = 0; i < DEPTH; i++) {
            struct ibv_sge sge = {(uintptr_t)memory, sizeof memory, mr->lkey};
            struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;
            CHECK(!ibv_post_recv(theirs, &receive, &bad));
        }
        expect(received, 1, DEPTH, 1);
        expect(sent, 1, DEPTH, 0);
        struct ibv_wc wc;
        CHECK(ibv_poll_cq(received, 1, &wc) == 0 && ibv_poll_cq(sent, 1, &wc) == 0);
    }
    CHECK(!ibv_destroy_qp(ours) && !ibv_destroy_qp(theirs));
    CHECK(!ibv_destroy_cq(sent) && !ibv_destroy_cq(received) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(ctx));
    printf("all or nothing\n");
    return 0;
}
