/* Two ends of a connection in one program: one of them says goodbye after its last message, and the other has not looked
   at that yet. Programs that hear of the end give up their queue pair, and with it what they have not taken off: so they
   hear of it later, but not never. Prints every surprise. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Milliseconds that a program has for its completions, a little less than it really has. */
#define PATIENCE 190

static int surprises;

static void must(int good, const char *what)
{
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Waits for an event, which must be of this kind; its id. */
static struct rdma_cm_id *next(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
    struct pollfd poller = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    must(poll(&poller, 1, 60000) == 1 && !rdma_get_cm_event(channel, &event), rdma_event_str(kind));
    if (event->event != kind)
        printf("%s instead of %s\n", rdma_event_str(event->event), rdma_event_str(kind)), surprises++;
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    return id;
}

static void add_pair(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};
    must(!rdma_create_qp(id, NULL, &attr), "a queue pair");
}

/* Waits for a completion, which must be good. */
static void take(struct ibv_cq *cq, const char *what)
{
    struct ibv_wc wc;
    long start = now();
    while (!ibv_poll_cq(cq, 1, &wc))
        must(now() - start < 60000, what);
    if (wc.status)
        printf("%s: %s\n", what, ibv_wc_status_str(wc.status)), surprises++;
}

/* The milliseconds from the goodbye until the other end hears of it. */
static long goodbye(struct sockaddr *address, int takes_first)
{
    struct rdma_event_channel *here = rdma_create_event_channel(), *there = rdma_create_event_channel();
    struct rdma_cm_id *listener, *client, *server;
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    must(!rdma_create_id(there, &listener, NULL, RDMA_PS_TCP) && !rdma_bind_addr(listener, address), "bind");
    must(!rdma_listen(listener, 1) && !rdma_create_id(here, &client, NULL, RDMA_PS_TCP), "listen");
    must(!rdma_resolve_addr(client, NULL, address, 2000), "address");
    next(here, RDMA_CM_EVENT_ADDR_RESOLVED);
    must(!rdma_resolve_route(client, 2000), "route");
    next(here, RDMA_CM_EVENT_ROUTE_RESOLVED);
    add_pair(client);
    must(!rdma_connect(client, &param), "connect");
    server = next(there, RDMA_CM_EVENT_CONNECT_REQUEST);
    add_pair(server);
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    must(!ibv_post_recv(server->qp, &receive, &bad_receive) && !rdma_accept(server, &param), "accept");
    next(here, RDMA_CM_EVENT_ESTABLISHED);
    next(there, RDMA_CM_EVENT_ESTABLISHED);

    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
    must(!ibv_post_send(client->qp, &send, &bad_send), "send");
    take(client->send_cq, "the last message, sent");
    if (takes_first)
        take(server->recv_cq, "the last message, received");
    long start = now();
    must(!rdma_disconnect(client), "disconnect");
    next(there, RDMA_CM_EVENT_DISCONNECTED);
    long passed = now() - start;
    if (!takes_first)
        take(server->recv_cq, "the last message, received late");

    rdma_destroy_qp(server);
    rdma_destroy_qp(client);
    must(!rdma_destroy_id(server) && !rdma_destroy_id(client) && !rdma_destroy_id(listener), "destroy");
    rdma_destroy_event_channel(here);
    rdma_destroy_event_channel(there);
    return passed;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7100)};
    inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &address.sin_addr);
    long passed = goodbye((struct sockaddr *)&address, 0);
    if (passed < PATIENCE)
        printf("a goodbye overtook a message: %ld ms\n", passed), surprises++;
    /* On a busy machine everything may take long: once is enough. */
    int tries = 0;
    do
        passed = goodbye((struct sockaddr *)&address, 1);
    while (passed >= PATIENCE && ++tries < 10);
    if (passed >= PATIENCE)
        printf("a program that has taken its message hears of the end after %ld ms\n", passed), surprises++;
    printf("%d surprises\n", surprises);
    return 0;
}
