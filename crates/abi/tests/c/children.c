/* Forks with an open device: the child's calls fail and do not hang, and the parent goes on. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = ibv_open_device(list[0]);
    if (!ctx) {
        perror("ibv_open_device");
        return 1;
    }
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        struct ibv_wc wc;
        if (ibv_poll_cq(cq, 1, &wc) >= 0 || ibv_alloc_pd(ctx) || errno != EPERM)
            _exit(2);
        if (ibv_dealloc_pd(pd) != EPERM || ibv_destroy_cq(cq) != EPERM)
            _exit(3);
        /* What the child opens itself is new. */
        struct ibv_context *own = ibv_open_device(list[0]);
        struct ibv_pd *own_pd = own ? ibv_alloc_pd(own) : NULL;
        if (!own_pd || ibv_dealloc_pd(own_pd) || ibv_close_device(own))
            _exit(4);
        _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) {
        printf("the child ended with 0x%x\n", status);
        return 1;
    }
    /* As the second child, another program: nothing of the library is in its way. */
    if (system("true") != 0)
        return 1;
    struct ibv_wc wc;
    if (ibv_poll_cq(cq, 1, &wc) != 0 || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(ctx))
        return 1;
    ibv_free_device_list(list);
    printf("as it should be\n");
    return 0;
}
