/* What libfabric does with answers of rdma_getaddrinfo, and binds to: it changes them, makes some itself, and has the library
   free both; and it binds ids to any address, which names no device. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int good, const char *what)
{
    if (!good) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static struct sockaddr *own_address(const char *text)
{
    struct sockaddr_in *address = calloc(1, sizeof *address);
    address->sin_family = AF_INET;
    inet_pton(AF_INET, text, &address->sin_addr);
    return (struct sockaddr *)address;
}

/* Binds an id, which must have a port then, and a device if the address names one. */
static void binds(struct sockaddr *address, int names_device)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    must(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "an id");
    must(!rdma_bind_addr(id, address), "bind");
    must(rdma_get_src_port(id) != 0, "a port");
    must(!names_device || id->verbs, "a device");
    must(!rdma_listen(id, 1), "listen");
    must(!rdma_destroy_id(id), "destroy");
    rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
    const char *here = argc > 1 ? argv[1] : "127.0.0.1";
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *found;

    /* An address in an answer is freed, and one of the program stands there. */
    must(!rdma_getaddrinfo(here, "7101", &hints, &found) && found->ai_dst_addr && !found->ai_src_addr, "an answer");
    free(found->ai_dst_addr);
    found->ai_dst_addr = own_address(here);
    found->ai_src_addr = own_address(here);
    found->ai_src_len = sizeof(struct sockaddr_in);
    found->ai_dst_canonname = strdup("a name");
    rdma_freeaddrinfo(found);

    /* The program makes a whole answer, behind one of the library. */
    must(!rdma_getaddrinfo(here, "7101", &hints, &found), "another answer");
    struct rdma_addrinfo *made = calloc(1, sizeof *made);
    made->ai_src_addr = own_address(here);
    made->ai_src_len = sizeof(struct sockaddr_in);
    made->ai_connect = malloc(8);
    found->ai_next = made;
    rdma_freeaddrinfo(found);

    /* An answer without a name and a port, from hints alone. */
    hints.ai_flags = RAI_PASSIVE;
    hints.ai_src_addr = own_address(here);
    hints.ai_src_len = sizeof(struct sockaddr_in);
    must(!rdma_getaddrinfo(NULL, NULL, &hints, &found) && found->ai_src_addr, "an answer from hints");
    must(found->ai_src_addr != hints.ai_src_addr, "a copy");
    rdma_freeaddrinfo(found);

    binds(hints.ai_src_addr, 1);
    binds(own_address("0.0.0.0"), 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    binds((struct sockaddr *)&any, 0);
    free(hints.ai_src_addr);
    printf("0 surprises\n");
    return 0;
}
