/* A question for a datagram service whose answer is lost. The server answers each question and destroys its id at once;
   it ends when it has been asked twice. Arguments: "server" or "client", the address of the server, and its port. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(1);
    }
}

static struct rdma_cm_id *next(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
    struct rdma_cm_event *event;
    check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    check(event->event != kind, rdma_event_str(event->event));
    struct rdma_cm_id *id = event->id;
    check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
    return id;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct rdma_conn_param param = {.qp_num = 0x123456};
    struct rdma_cm_id *id;
    setvbuf(stdout, NULL, _IOLBF, 0);
    check(argc != 4, "arguments");
    inet_pton(AF_INET, argv[2], &address.sin_addr);
    address.sin_port = htons(atoi(argv[3]));
    struct rdma_event_channel *channel = rdma_create_event_channel();
    check(!channel, "rdma_create_event_channel");
    check(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), "rdma_create_id");
    if (strcmp(argv[1], "server") == 0) {
        check(rdma_bind_addr(id, (struct sockaddr *)&address), "rdma_bind_addr");
        check(rdma_listen(id, 4), "rdma_listen");
        printf("listens\n");
        for (int asked = 0; asked < 2; asked++) {
            struct rdma_cm_id *question = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
            check(rdma_accept(question, &param), "rdma_accept");
            check(rdma_destroy_id(question), "rdma_destroy_id");
        }
        printf("asked twice\n");
        return 0;
    }
    check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), "rdma_resolve_addr");
    next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
    next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    check(rdma_connect(id, &param), "rdma_connect");
    next(channel, RDMA_CM_EVENT_UNREACHABLE);
    return 0;
}
