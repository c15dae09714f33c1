/* What completions of receives say of the packets that they came with: of connections and of datagrams. The argument is the
   kind of packet that datagrams come in. Prints every surprise. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int surprises;
static union ibv_gid gid;
static char memory[8192];

static void expect(const char *what, uint64_t got, uint64_t expected) {
    if (got != expected) {
        printf("%s: %lu, not %lu\n", what, (unsigned long)got, (unsigned long)expected);
        surprises++;
    }
}

static struct ibv_qp *made(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = type, .sq_sig_all = 1};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
    int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    expect("to INIT", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
    return qp;
}

static void connect(struct ibv_qp *qp, uint32_t peer, enum ibv_qp_type type) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer};
    attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}};
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    int mask = IBV_QP_STATE;
    if (type != IBV_QPT_UD)
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (type == IBV_QPT_RC)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    expect("to RTR", ibv_modify_qp(qp, &attr, mask), 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7};
    attr.max_rd_atomic = 1;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (type == IBV_QPT_RC)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    expect("to RTS", ibv_modify_qp(qp, &attr, mask), 0);
}

/* The completion of the receive; that of the send must be without any flag. */
static struct ibv_wc received(struct ibv_cq *cq) {
    struct ibv_wc got = {0};
    for (int seen = 0; seen < 2;) {
        struct ibv_wc wc;
        if (ibv_poll_cq(cq, 1, &wc) != 1)
            continue;
        seen++;
        expect("status", wc.status, IBV_WC_SUCCESS);
        if (wc.opcode & IBV_WC_RECV)
            got = wc;
        else
            expect("flags of a send", wc.wc_flags, 0);
    }
    return got;
}

static void trip(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_mr *mr, enum ibv_qp_type type, int kind) {
    struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
    struct ibv_qp *a = made(pd, cq, type), *b = made(pd, cq, type);
    connect(a, b->qp_num, type);
    connect(b, a->qp_num, type);
    struct ibv_sge into = {.addr = (uintptr_t)memory, .length = 4096, .lkey = mr->lkey};
    struct ibv_sge from = {.addr = (uintptr_t)memory + 4096, .length = 8, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &into, .num_sge = 1}, *bad_receive;
    expect("receive", ibv_post_recv(b, &receive, &bad_receive), 0);
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM}, *bad;
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64, .flow_label = 0xabcde}};
    struct ibv_ah *ah = type == IBV_QPT_UD ? ibv_create_ah(pd, &to) : NULL;
    send.wr.ud.ah = ah;
    send.wr.ud.remote_qpn = b->qp_num;
    send.wr.ud.remote_qkey = 5;
    expect("send", ibv_post_send(a, &send, &bad), 0);
    struct ibv_wc wc = received(cq);
    int is_datagram = type == IBV_QPT_UD;
    expect("flags", wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    expect("kind of packet", wc.sl, is_datagram ? kind : 0);
    expect("length", wc.byte_len, is_datagram ? 48 : 8);
    expect("sender", wc.src_qp, is_datagram ? a->qp_num : 0);
    if (is_datagram && kind == 1)
        expect("flow label", (memory[1] & 15) << 16 | (memory[2] & 255) << 8 | (memory[3] & 255), 0xabcde);
    expect("destroy", ibv_destroy_qp(a) | ibv_destroy_qp(b) | (ah ? ibv_destroy_ah(ah) : 0), 0);
    expect("destroy", ibv_destroy_cq(cq), 0);
}

int main(int argc, char **argv) {
    int kind = argc > 1 ? atoi(argv[1]) : 0;
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    if (!ctx)
        return 1;
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    expect("address", ibv_query_gid(ctx, 1, 0, &gid), 0);
    trip(ctx, pd, mr, IBV_QPT_RC, kind);
    trip(ctx, pd, mr, IBV_QPT_UC, kind);
    trip(ctx, pd, mr, IBV_QPT_UD, kind);
    expect("end", ibv_dereg_mr(mr) | ibv_dealloc_pd(pd) | ibv_close_device(ctx), 0);
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
