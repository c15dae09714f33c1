/*
 *   doors LOADING CLOSING     loads and closes the two libraries in the order given: v for verbs, c for connections
 *
 * Both lead to one engine. Nothing happens before the first call. What was opened goes on while the libraries are closed.
 */
#include "card.h"

#include <dirent.h>
#include <link.h>

static const char *door(char which) {
    return which == 'v' ? "libibverbs.so.1" : "librdmacm.so.1";
}

static int threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static int is_engine(struct dl_phdr_info *info, size_t size, void *count) {
    *(int *)count += strstr(info->dlpi_name, "/libferroce.so.0") != NULL;
    return 0;
}

static int engines(void) {
    int count = 0;
    dl_iterate_phdr(is_engine, &count);
    return count;
}

int main(int argc, char **argv) {
    must(argc == 3 && !engines(), "arguments");
    void *handles[128] = {0};
    for (const char *which = argv[1]; *which; which++) {
        must((handles[(int)*which] = dlopen(door(*which), RTLD_NOW)) != NULL, "load");
        must(engines() == 1 && threads() == 1, "one engine, which rests");
    }
    const char *(*event)(int) = symbol(handles['c'], "rdma_event_str");
    must(event(-1) != NULL && threads() == 1, "a call that needs no card");
    must(dlvsym(handles['c'], "rdma_reject_ece", "RDMACM_1.3") && !dlvsym(handles['c'], "rdma_connect", "RDMACM_1.3"),
         "versions");
    must(!dlsym(handles['c'], "ibv_open_device") && !dlsym(handles['v'], "rdma_connect"), "each has its own names");

    static struct card card, again;
    open_card(handles['v'], &card);
    exchange(&card);
    int running = threads();
    must(running > 1, "threads of the card");
    for (const char *which = argv[2]; *which; which++) {
        must(!dlclose(handles[(int)*which]) && !dlopen(door(*which), RTLD_NOW | RTLD_NOLOAD), "close");
        must(engines() == 1 && threads() == running, "the engine goes on");
        exchange(&card);
    }
    void *library = dlopen(door('v'), RTLD_NOW);
    must(library && engines() == 1, "load again");
    open_card(library, &again);
    exchange(&again);
    exchange(&card);
    close_card(library, &again);
    exchange(&card);
    close_card(library, &card);
    must(!dlclose(library), "close again");
    printf("one engine\n");
    return 0;
}
