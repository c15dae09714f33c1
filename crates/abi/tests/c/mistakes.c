/* What programs do wrong, and the error number that each mistake gets. Prints every surprise. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>
#include <poll.h>

static int surprises;

#define NUMBER(call, expected)                                                                                       \
    do {                                                                                                             \
        int got = (call);                                                                                            \
        if (got != (expected)) {                                                                                     \
            printf("%s: %d, not %d\n", #call, got, (expected));                                                      \
            surprises++;                                                                                             \
        }                                                                                                            \
    } while (0)

#define NULL_WITH(call, expected)                                                                                    \
    do {                                                                                                             \
        errno = 0;                                                                                                   \
        void *got = (call);                                                                                          \
        if (got || errno != (expected)) {                                                                            \
            printf("%s: %p with errno %d, not %d\n", #call, got, errno, (expected));                                 \
            surprises++;                                                                                             \
        }                                                                                                            \
    } while (0)

#define MINUS_ONE_WITH(call, expected)                                                                               \
    do {                                                                                                             \
        errno = 0;                                                                                                   \
        int got = (call);                                                                                            \
        if (got != -1 || errno != (expected)) {                                                                      \
            printf("%s: %d with errno %d, not %d\n", #call, got, errno, (expected));                                 \
            surprises++;                                                                                             \
        }                                                                                                            \
    } while (0)

static void *wait_for_event(void *channel) {
    struct ibv_cq *cq;
    void *context;
    ibv_get_cq_event(channel, &cq, &context);
    return NULL;
}

/* A datagram to a group that its sender belongs to comes back to it. */
static void multicast(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_mr *mr, union ibv_gid *group) {
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
    NUMBER(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    NUMBER(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    NUMBER(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    union ibv_gid host;
    NUMBER(ibv_query_gid(qp->context, 1, 0, &host), 0);
    NUMBER(ibv_attach_mcast(qp, NULL, 0), EINVAL);
    NUMBER(ibv_attach_mcast(qp, &host, 0), EINVAL);
    NUMBER(ibv_detach_mcast(qp, group, 0), EINVAL);
    NUMBER(ibv_attach_mcast(qp, group, 0), 0);
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = *group}};
    struct ibv_ah *handle = ibv_create_ah(pd, &to);
    struct ibv_sge room = {.addr = 0x1000, .length = 64, .lkey = mr->lkey};
    struct ibv_sge text = {.addr = 0x1100, .length = 8, .lkey = mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 21, .sg_list = &room, .num_sge = 1}, *bad = NULL;
    struct ibv_send_wr send = {.wr_id = 22, .sg_list = &text, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
    send.send_flags = IBV_SEND_SIGNALED;
    send.wr.ud.ah = handle;
    send.wr.ud.remote_qpn = 0xffffff;
    send.wr.ud.remote_qkey = 5;
    NUMBER(ibv_post_recv(qp, &receive, &bad), 0);
    NUMBER(ibv_post_send(qp, &send, &bad_send), 0);
    for (int done = 0; done < 2;) {
        struct ibv_wc wc;
        if (ibv_poll_cq(cq, 1, &wc) == 1) {
            NUMBER(wc.status, IBV_WC_SUCCESS);
            NUMBER(wc.wr_id == 21 ? (int)wc.byte_len : 48, 48);
            done++;
        }
    }
    NUMBER(ibv_detach_mcast(qp, group, 0), 0);
    NUMBER(ibv_destroy_ah(handle), 0);
    NUMBER(ibv_destroy_qp(qp), 0);
}

int main(void) {
    NULL_WITH(ibv_open_device(NULL), EINVAL);
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (!ctx) {
        perror("ibv_open_device");
        return 1;
    }
    NULL_WITH(ibv_alloc_pd(NULL), EINVAL);
    struct ibv_pd *pd = ibv_alloc_pd(ctx);

    union ibv_gid gid;
    struct ibv_port_attr port;
    struct ibv_gid_entry entry;
    __be16 pkey;
    NUMBER(ibv_query_port(ctx, 0, &port), EINVAL);
    NUMBER(ibv_query_port(ctx, 2, &port), EINVAL);
    NUMBER(ibv_query_device(ctx, NULL), EINVAL);
    MINUS_ONE_WITH(ibv_query_gid(ctx, 1, 256, &gid), EINVAL);
    MINUS_ONE_WITH(ibv_query_gid(ctx, 1, -1, &gid), EINVAL);
    MINUS_ONE_WITH(ibv_query_gid(ctx, 1, 0, NULL), EINVAL);
    NUMBER(ibv_query_gid_ex(ctx, 1, 255, &entry, 0), ENODATA);
    NUMBER(ibv_query_gid_ex(ctx, 1, 0, &entry, 1), EOPNOTSUPP);
    NUMBER((int)ibv_query_gid_table(ctx, &entry, 0, 0), -EINVAL);
    MINUS_ONE_WITH(ibv_query_pkey(ctx, 1, 1, &pkey), EINVAL);
    MINUS_ONE_WITH(ibv_get_pkey_index(ctx, 1, 0x1234), EINVAL);

    /* Memory. */
    long page = sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + page, page, PROT_NONE);
    mprotect(memory + 2 * page, page, PROT_READ);
    int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    NULL_WITH(ibv_reg_mr(pd, memory, 2 * page, all), EFAULT);
    NULL_WITH(ibv_reg_mr(pd, memory + page, page, 0), EFAULT);
    NULL_WITH(ibv_reg_mr(pd, memory + 2 * page, page, all), EFAULT);
    NULL_WITH(ibv_reg_mr(pd, (void *)16, page, 0), EFAULT);
    NULL_WITH(ibv_reg_mr(pd, memory, SIZE_MAX / 2, 0), EFAULT);
    NULL_WITH(ibv_reg_mr(pd, memory, page, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    NULL_WITH(ibv_reg_mr(pd, memory, page, 1 << 15), EINVAL);
    NULL_WITH(ibv_reg_mr(pd, memory, page, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    NULL_WITH(ibv_reg_mr(NULL, memory, page, 0), EINVAL);
    NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, page, 0, 0, 0), EOPNOTSUPP);
    struct ibv_mr *read_only = ibv_reg_mr(pd, memory + 2 * page, page, IBV_ACCESS_REMOTE_READ);
    struct ibv_mr *mr = ibv_reg_mr_iova(pd, memory, page, 0x1000, all | IBV_ACCESS_RELAXED_ORDERING);
    if (!read_only || !mr) {
        printf("memory that is there was refused: %d\n", errno);
        surprises++;
    }
    NUMBER(ibv_dealloc_pd(pd), EBUSY);

    /* Queues. */
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    NULL_WITH(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
    NULL_WITH(ibv_create_cq(ctx, INT_MAX, NULL, NULL, 0), EINVAL);
    NULL_WITH(ibv_create_cq(ctx, -1, NULL, NULL, 0), EINVAL);
    NULL_WITH(ibv_create_cq(ctx, 16, NULL, NULL, 1), EINVAL);
    struct ibv_cq *cq = ibv_create_cq(ctx, 16, &surprises, channel, 0);
    NUMBER(ibv_destroy_comp_channel(channel), EBUSY);
    struct ibv_cq *got_cq;
    void *got_context;
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    MINUS_ONE_WITH(ibv_get_cq_event(channel, &got_cq, &got_context), EAGAIN);
    struct ibv_async_event event;
    fcntl(ctx->async_fd, F_SETFL, fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK);
    MINUS_ONE_WITH(ibv_get_async_event(ctx, &event), EAGAIN);
    struct pollfd polled = {.fd = channel->fd, .events = POLLIN};
    NUMBER(poll(&polled, 1, 0), 0);
    struct ibv_modify_cq_attr moderation = {.attr_mask = 2};
    NUMBER(ibv_modify_cq(cq, &moderation), EINVAL);
    moderation = (struct ibv_modify_cq_attr){.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {17, 1000}};
    NUMBER(ibv_modify_cq(cq, &moderation), EINVAL);
    moderation.moderate.cq_count = 1;
    NUMBER(ibv_modify_cq(cq, &moderation), 0);
    NUMBER(ibv_resize_cq(cq, 0), EINVAL);
    NUMBER(ibv_resize_cq(cq, 32), 0);
    NUMBER(cq->cqe, 32);
    /* A thread that waits for an event can be cancelled. */
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) & ~O_NONBLOCK);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_event, channel);
    pthread_cancel(thread);
    pthread_join(thread, &got_context);
    if (got_context != PTHREAD_CANCELED) {
        printf("the thread was not cancelled\n");
        surprises++;
    }

    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 0, .max_sge = 1}};
    NULL_WITH(ibv_create_srq(pd, &shared), EINVAL);
    shared.attr.max_wr = UINT_MAX;
    NULL_WITH(ibv_create_srq(pd, &shared), EINVAL);
    shared.attr.max_wr = 4;
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_srq_attr limit = {.srq_limit = 5};
    NUMBER(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), EINVAL);
    NUMBER(ibv_modify_srq(srq, &limit, 1 << 7), EINVAL);

    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){.max_send_wr = UINT_MAX, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
    init.cap.max_send_wr = 2;
    init.cap.max_send_sge = 1000;
    NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
    init.cap.max_send_sge = 1;
    init.cap.max_inline_data = 1 << 20;
    NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
    init.cap.max_inline_data = 16;
    init.send_cq = NULL;
    NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
    init.send_cq = cq;
    init.qp_type = 77;
    NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
    init.qp_type = IBV_QPT_RAW_PACKET;
    NULL_WITH(ibv_create_qp(pd, &init), EOPNOTSUPP);
    init.qp_type = IBV_QPT_XRC_SEND;
    NULL_WITH(ibv_create_qp(pd, &init), EOPNOTSUPP);
    init.qp_type = IBV_QPT_RC;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    NUMBER(ibv_destroy_cq(cq), EBUSY);
    if (ibv_qp_to_qp_ex(qp)) {
        printf("a plain queue pair has the extended form\n");
        surprises++;
    }

    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR;
    NUMBER(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = 42;
    NUMBER(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    NUMBER(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    NUMBER(ibv_modify_qp(qp, NULL, IBV_QP_STATE), EINVAL);
    NUMBER(ibv_modify_qp(qp, &attr, 1 << 30), EINVAL);
    attr.port_num = 2;
    int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    NUMBER(ibv_modify_qp(qp, &attr, init_mask), EINVAL);
    attr.port_num = 1;
    attr.pkey_index = 7;
    NUMBER(ibv_modify_qp(qp, &attr, init_mask), EINVAL);
    attr.pkey_index = 0;
    NUMBER(ibv_modify_qp(qp, &attr, init_mask), 0);
    NUMBER(qp->state, IBV_QPS_INIT);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = 9;
    attr.dest_qp_num = qp->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    ibv_query_gid(ctx, 1, 0, &attr.ah_attr.grh.dgid);
    int rtr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    NUMBER(ibv_modify_qp(qp, &attr, rtr_mask), EINVAL);
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr.grh.sgid_index = 200;
    NUMBER(ibv_modify_qp(qp, &attr, rtr_mask), EINVAL);
    attr.ah_attr.grh.sgid_index = 0;
    attr.ah_attr.is_global = 0;
    NUMBER(ibv_modify_qp(qp, &attr, rtr_mask), EINVAL);
    attr.ah_attr.is_global = 1;
    struct ibv_sge sge = {.addr = 0x1000, .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr send = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send = NULL;
    NUMBER(ibv_post_send(qp, &send, &bad_send), EINVAL);
    NUMBER(bad_send == &send, 1);
    NUMBER(ibv_modify_qp(qp, &attr, rtr_mask), 0);
    attr.qp_state = IBV_QPS_RTS;
    NUMBER(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                        IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);

    /* Work: the second of three is wrong, so the first is taken and the third is not. */
    struct ibv_recv_wr second = {.wr_id = 12, .num_sge = 2, .sg_list = &sge};
    struct ibv_recv_wr first = {.wr_id = 11, .num_sge = 1, .sg_list = &sge, .next = &second}, *bad = NULL;
    NUMBER(ibv_post_recv(qp, &first, &bad), EINVAL);
    NUMBER(bad == &second, 1);
    NUMBER(ibv_post_recv(qp, &(struct ibv_recv_wr){.num_sge = 0}, &bad), ENOMEM);
    send.num_sge = -1;
    NUMBER(ibv_post_send(qp, &send, &bad_send), EINVAL);
    send.num_sge = 1;
    send.opcode = 99;
    NUMBER(ibv_post_send(qp, &send, &bad_send), EINVAL);
    send.opcode = IBV_WR_RDMA_READ;
    NUMBER(ibv_post_send(qp, &send, &bad_send), EINVAL);
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_INLINE;
    sge.length = 17;
    sge.addr = (uintptr_t)memory;
    NUMBER(ibv_post_send(qp, &send, &bad_send), EINVAL);
    struct ibv_wc wc;
    NUMBER(ibv_poll_cq(cq, 1, &wc), 0);

    /* Addresses. */
    struct ibv_ah_attr ah = {.is_global = 0, .port_num = 1, .dlid = 1};
    NULL_WITH(ibv_create_ah(pd, &ah), EINVAL);
    ah.is_global = 1;
    ah.grh.sgid_index = 99;
    NULL_WITH(ibv_create_ah(pd, &ah), EINVAL);
    ah.grh.sgid_index = 0;
    NULL_WITH(ibv_create_ah(pd, &ah), EINVAL);
    ibv_query_gid(ctx, 1, 0, &ah.grh.dgid);
    ah.static_rate = 99;
    NULL_WITH(ibv_create_ah(pd, &ah), EINVAL);
    ah.static_rate = IBV_RATE_10_GBPS;
    struct ibv_ah *handle = ibv_create_ah(pd, &ah);
    NUMBER(handle != NULL, 1);
    wc.wc_flags = 0;
    MINUS_ONE_WITH(ibv_init_ah_from_wc(ctx, 1, &wc, NULL, &ah), EINVAL);

    /* Multicast groups. */
    union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 8, [14] = 8, [15] = 8}};
    NUMBER(ibv_attach_mcast(NULL, &group, 0), EINVAL);
    NUMBER(ibv_attach_mcast(qp, &group, 0), EINVAL);
    multicast(pd, cq, mr, &group);

    /* What is not there. */
    NULL_WITH(ibv_alloc_td(ctx, NULL), EOPNOTSUPP);
    NULL_WITH(ibv_open_xrcd(ctx, NULL), EOPNOTSUPP);
    NULL_WITH(ibv_alloc_null_mr(pd), EOPNOTSUPP);
    NULL_WITH(ibv_import_device(0), EOPNOTSUPP);
    struct ibv_alloc_dm_attr dm = {.length = 64};
    NULL_WITH(ibv_alloc_dm(ctx, &dm), EOPNOTSUPP);

    NUMBER(ibv_destroy_ah(handle), 0);
    NUMBER(ibv_destroy_qp(qp), 0);
    NUMBER(ibv_destroy_srq(srq), 0);
    NUMBER(ibv_destroy_cq(cq), 0);
    NUMBER(ibv_destroy_comp_channel(channel), 0);
    NUMBER(ibv_dereg_mr(mr), 0);
    NUMBER(ibv_dereg_mr(read_only), 0);
    NUMBER(ibv_dealloc_pd(pd), 0);
    NUMBER(ibv_close_device(ctx), 0);
    NUMBER(ibv_dealloc_pd(NULL), EINVAL);
    MINUS_ONE_WITH(ibv_close_device(NULL), EINVAL);
    printf("%d surprises\n", surprises);
    return surprises != 0;
}
