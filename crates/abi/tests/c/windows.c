/* Memory windows: the keys of type 1 are made by the library and do not follow from each other; those of type 2 are the
 * program's. Bindings may be posted before the ones before them are done. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 50
#define ROW 5
#define CHECK(what)                                                                                                  \
    do {                                                                                                             \
        if (!(what)) {                                                                                               \
            printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno);                                      \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[4096];

static void join(struct ibv_qp *qp, struct ibv_qp *peer) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
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

static struct ibv_qp *pair(struct ibv_qp **peer) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    *peer = ibv_create_qp(pd, &init);
    CHECK(qp && *peer);
    join(qp, *peer);
    join(*peer, qp);
    return qp;
}

static enum ibv_wc_status done(void) {
    struct ibv_wc wc;
    int n;
    while (!(n = ibv_poll_cq(cq, 1, &wc)))
        ;
    CHECK(n == 1);
    return wc.status;
}

static enum ibv_wc_status writes(struct ibv_qp *qp, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + 1024;
    wr.wr.rdma.rkey = rkey;
    CHECK(!ibv_post_send(qp, &wr, &bad));
    return done();
}

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0] && (ctx = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(ctx)));
    CHECK((cq = ibv_create_cq(ctx, 64, NULL, NULL, 0)));
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, all)));
    struct ibv_qp *theirs, *ours = pair(&theirs);
    struct ibv_mw_bind_info part = {mr, (uintptr_t)memory + 1024, 64, IBV_ACCESS_REMOTE_WRITE};

    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    struct ibv_mw_bind bind = {.bind_info = part};
    uint32_t old = mw->rkey;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < ROW; i++) {
            CHECK(!ibv_bind_mw(theirs, mw, &bind));
            CHECK(mw->rkey >> 8 != old >> 8);
            old = mw->rkey;
        }
        for (int i = 0; i < ROW; i++)
            CHECK(done() == IBV_WC_SUCCESS);
        CHECK(writes(ours, mw->rkey) == IBV_WC_SUCCESS);
    }
    /* A peer that counts on from the last one is refused, at the price of a queue pair. */
    CHECK(!ibv_bind_mw(theirs, mw, &bind) && done() == IBV_WC_SUCCESS);
    struct ibv_qp *other, *guesser = pair(&other);
    CHECK(writes(guesser, ibv_inc_rkey(old)) == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_destroy_qp(guesser) && !ibv_destroy_qp(other));
    CHECK(writes(ours, mw->rkey) == IBV_WC_SUCCESS);
    /* A request cannot bind it, as the program would choose its key. */
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW}, *bad = NULL;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = part;
    CHECK(ibv_post_send(theirs, &wr, &bad) == EINVAL && bad == &wr);
    CHECK(writes(ours, mw->rkey) == IBV_WC_SUCCESS);
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    CHECK(!ibv_dealloc_mw(mw));

    mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    wr.bind_mw.mw = mw;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t next = ibv_inc_rkey(mw->rkey);
        wr.bind_mw.rkey = next;
        CHECK(!ibv_post_send(theirs, &wr, &bad) && done() == IBV_WC_SUCCESS);
        mw->rkey = next;
        CHECK(writes(ours, next) == IBV_WC_SUCCESS);
    }
    CHECK(!ibv_dealloc_mw(mw));
    CHECK(!ibv_destroy_qp(ours) && !ibv_destroy_qp(theirs) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
    printf("every key opened what it should\n");
    return 0;
}
