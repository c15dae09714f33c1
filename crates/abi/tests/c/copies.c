/*
 *   copies LOADING CLOSING PLUGIN OTHER     loads libraries and opens a card in each, in this order, and closes them in that
 *
 *   v  libibverbs.so.1           c  librdmacm.so.1, the same card
 *   p  PLUGIN, a card of its own  q  OTHER, the same plugin under another name
 *
 * CLOSING may also be "wait": says that all are open, and waits for its end, a minute at most; or "exec": becomes itself anew, and closes all;
 * or "refused": the system allows no thread descriptors of its own, and only the first card can be opened.
 *
 * After every step a message goes through every card, and each has slots of its own, as the kernel lists their locks.
 */
#include "card.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct copy {
    void *library;
    struct card card;
    void *pair;
    int is_open;
} copies[128];

/* Slots that this process has locked, or rows of the process that leads. */
static int locks(int of_leader) {
    FILE *file = fopen("/proc/locks", "r");
    char line[256], kind[16], pid[16], mode[16];
    int count = 0;
    long first;
    snprintf(pid, sizeof pid, "%d", getpid());
    while (file && fgets(line, sizeof line, file)) {
        char by[16], of[64];
        if (sscanf(line, "%*s %15s %*s %15s %15s %63s %ld", kind, mode, by, of, &first) == 5 && !strcmp(kind, "POSIX") &&
            !strcmp(mode, "WRITE") && !strcmp(by, pid))
            count += of_leader ? first == 4097 : first > 0 && first < 256;
    }
    if (file)
        fclose(file);
    return count;
}

/* The kernel's list comes in pieces, and may change between them. */
static void expect_slots(int expected, const char *when) {
    for (int i = 0; i < 2000 && (locks(0) != expected || locks(1) > 1); i++)
        usleep(1000);
    if (locks(0) != expected || locks(1) > 1) {
        fprintf(stderr, "%s: %d slots of %d, %d leaders\n", when, locks(0), expected, locks(1));
        _exit(4);
    }
}

/* One message through every card, of the copies that are open. */
static void exchange_all(void) {
    for (int i = 0; i < 128; i++) {
        if (copies[i].is_open && i == 'v')
            exchange(&copies[i].card);
        else if (copies[i].is_open)
            must(!((int (*)(void *))symbol(copies[i].library, "plugin_exchange"))(copies[i].pair), "the plugin's message");
    }
}

static int is_card(char which) {
    return which != 'c';
}

static void load(char which, char **argv) {
    struct copy *copy = &copies[(int)which];
    const char *name = which == 'v' ? "libibverbs.so.1" : which == 'c' ? "librdmacm.so.1" : argv[which == 'p' ? 3 : 4];
    copy->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!copy->library)
        fprintf(stderr, "%s\n", dlerror());
    must(copy->library != NULL, "load");
    if (which == 'v')
        open_card(copy->library, &copy->card);
    else if (which != 'c')
        must((copy->pair = ((void *(*)(void))symbol(copy->library, "plugin_open"))()) != NULL, "the plugin's card");
    copy->is_open = is_card(which);
}

static void unload(char which) {
    struct copy *copy = &copies[(int)which];
    if (which == 'v')
        close_card(copy->library, &copy->card);
    else if (which != 'c')
        ((void (*)(void *))symbol(copy->library, "plugin_close"))(copy->pair);
    copy->is_open = 0;
    must(!dlclose(copy->library), "dlclose");
}

/* A child begins anew: with a card of its own, or as another program. */
static void fork_and_back(char which, char **argv) {
    int status;
    pid_t child = fork();
    if (!child) {
        memset(copies, 0, sizeof copies);
        if (which == 'x')
            execlp("true", "true", NULL);
        load(which, argv);
        exchange_all();
        unload(which);
        _exit(0);
    }
    must(waitpid(child, &status, 0) == child && status == 0, "the child");
}

/* From now on no thread gets descriptors of its own. */
static void forbid(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "a filter");
}

/* Only the first card can be opened, and notices nothing of the others. */
static void refused(char **argv) {
    forbid();
    load(argv[1][0], argv);
    exchange_all();
    int slots = locks(0);
    must(slots > 0, "slots");
    for (const char *which = argv[1] + 1; *which; which++) {
        if (*which == 'v') {
            void *library = dlopen("libibverbs.so.1", RTLD_NOW);
            struct ibv_device **list = CALL(library, ibv_get_device_list)(NULL);
            must(!CALL(library, ibv_open_device)(list[0]) && errno == EBUSY, "a refusal");
        } else {
            void *library = dlopen(argv[*which == 'p' ? 3 : 4], RTLD_NOW);
            must(!((void *(*)(void))symbol(library, "plugin_open"))(), "a refusal");
        }
        exchange_all();
        expect_slots(slots, "after a refusal");
    }
    fork_and_back(argv[1][0], argv);
    exchange_all();
    unload(argv[1][0]);
    expect_slots(0, "at the end");
}

int main(int argc, char **argv) {
    must(argc == 5, "arguments");
    expect_slots(0, "at the beginning");
    if (!strcmp(argv[2], "refused")) {
        refused(argv);
        printf("one card\n");
        return 0;
    }
    int of_one = 0, cards = 0;
    for (const char *which = argv[1]; *which; which++) {
        load(*which, argv);
        cards += is_card(*which);
        of_one = of_one ? of_one : locks(0);
        exchange_all();
        expect_slots(cards * of_one, "after loading");
    }
    if (!strcmp(argv[2], "wait")) {
        printf("open\n");
        fflush(stdout);
        alarm(60);
        for (;;)
            pause();
    }
    if (!strcmp(argv[2], "exec")) {
        argv[2] = argv[1];
        execv("/proc/self/exe", argv);
        must(0, "exec");
    }
    for (const char *child = "xvp"; *child; child++) {
        fork_and_back(*child, argv);
        exchange_all();
        expect_slots(cards * of_one, "after a fork");
    }
    for (const char *which = argv[2]; *which; which++) {
        unload(*which);
        cards -= is_card(*which);
        exchange_all();
        expect_slots(cards * of_one, "after closing");
    }
    printf("all went well\n");
    return 0;
}
