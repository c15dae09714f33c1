// Messages between ranks: a ring, pairs of all sizes, and the collective functions, every byte checked.
// Arguments: how many rounds.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

#define CHECK(condition, ...)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "rank %d, line %d: ", rank, __LINE__);             \
            fprintf(stderr, __VA_ARGS__);                                      \
            fprintf(stderr, "\n");                                             \
            MPI_Abort(MPI_COMM_WORLD, 1);                                      \
        }                                                                      \
    } while (0)

// The byte at a place of a message that one rank sends to another.
static unsigned char byte(int from, int to, int place, int round) {
    return (unsigned char)(from * 31 + to * 17 + round * 7 + place + (place >> 8) * 3);
}

static unsigned char *room(size_t size) {
    unsigned char *memory = malloc(size ? size : 1);
    CHECK(memory, "no memory");
    return memory;
}

// A token goes around; each rank adds its number.
static void ring(int round) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    int token = round;
    if (rank == 0) {
        MPI_Send(&token, 1, MPI_INT, next, 1, MPI_COMM_WORLD);
        MPI_Recv(&token, 1, MPI_INT, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(token == round + ranks * (ranks - 1) / 2, "the token is %d", token);
    } else {
        MPI_Recv(&token, 1, MPI_INT, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token += rank;
        MPI_Send(&token, 1, MPI_INT, next, 1, MPI_COMM_WORLD);
    }
}

// Every rank sends to every other at once: eager messages, and those that are read from the sender.
static void pairs(int size, int round) {
    unsigned char *out = room((size_t)size * ranks), *in = room((size_t)size * ranks);
    MPI_Request *requests = malloc(sizeof *requests * 2 * ranks);
    int count = 0;
    memset(in, 0xee, (size_t)size * ranks);
    for (int peer = 0; peer < ranks; peer++) {
        for (int place = 0; place < size; place++)
            out[(size_t)peer * size + place] = byte(rank, peer, place, round);
        MPI_Irecv(in + (size_t)peer * size, size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[count++]);
    }
    for (int peer = 0; peer < ranks; peer++) {
        // A synchronous one completes only when it is matched.
        if (round % 2)
            MPI_Issend(out + (size_t)peer * size, size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[count++]);
        else
            MPI_Isend(out + (size_t)peer * size, size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &requests[count++]);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < ranks; peer++)
        for (int place = 0; place < size; place++)
            CHECK(in[(size_t)peer * size + place] == byte(peer, rank, place, round),
                  "byte %d of %d from %d is %d", place, size, peer, in[(size_t)peer * size + place]);
    free(requests);
    free(out);
    free(in);
}

static void collectives(int count, int round) {
    int root = round % ranks;
    long *mine = (long *)room(sizeof(long) * count * ranks), *all = (long *)room(sizeof(long) * count * ranks);

    for (int i = 0; i < count; i++)
        mine[i] = rank == root ? i * 3L + round : -1;
    MPI_Bcast(mine, count, MPI_LONG, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        CHECK(mine[i] == i * 3L + round, "bcast: %ld at %d", mine[i], i);

    for (int i = 0; i < count; i++)
        mine[i] = (long)rank * 1000 + i;
    MPI_Allreduce(mine, all, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        CHECK(all[i] == 1000L * ranks * (ranks - 1) / 2 + (long)i * ranks, "allreduce: %ld at %d", all[i], i);
    MPI_Reduce(mine, all, count, MPI_LONG, MPI_MAX, root, MPI_COMM_WORLD);
    for (int i = 0; i < count && rank == root; i++)
        CHECK(all[i] == 1000L * (ranks - 1) + i, "reduce: %ld at %d", all[i], i);
    MPI_Scan(mine, all, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        CHECK(all[i] == 1000L * rank * (rank + 1) / 2 + (long)i * (rank + 1), "scan: %ld at %d", all[i], i);

    MPI_Gather(mine, count, MPI_LONG, all, count, MPI_LONG, root, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks && rank == root; i++)
        CHECK(all[i] == (long)(i / count) * 1000 + i % count, "gather: %ld at %d", all[i], i);
    MPI_Allgather(mine, count, MPI_LONG, all, count, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks; i++)
        CHECK(all[i] == (long)(i / count) * 1000 + i % count, "allgather: %ld at %d", all[i], i);

    for (int i = 0; i < count * ranks; i++)
        mine[i] = rank * 1000000L + (i / count) * 10000L + i % count + round;
    MPI_Alltoall(mine, count, MPI_LONG, all, count, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks; i++)
        CHECK(all[i] == (i / count) * 1000000L + rank * 10000L + i % count + round, "alltoall: %ld at %d", all[i], i);

    for (int i = 0; i < count * ranks; i++)
        mine[i] = root * 5L + i;
    MPI_Scatter(mine, count, MPI_LONG, all, count, MPI_LONG, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        CHECK(all[i] == root * 5L + rank * count + i, "scatter: %ld at %d", all[i], i);
    MPI_Reduce_scatter_block(mine, all, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        CHECK(all[i] == (root * 5L + rank * count + i) * ranks, "reduce_scatter: %ld at %d", all[i], i);

    // Both go on at once.
    MPI_Request requests[2];
    long sum = 0, one = rank + 1;
    MPI_Iallreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(sum == (long)ranks * (ranks + 1) / 2, "iallreduce: %ld", sum);
    MPI_Barrier(MPI_COMM_WORLD);
    free(mine);
    free(all);
}

int main(int argc, char **argv) {
    static const int sizes[] = {0, 1, 8, 255, 1024, 4097, 8192, 65536, 300001, 1048576};
    static const int counts[] = {1, 100, 5000};
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < rounds; round++) {
        for (int again = 0; again < 20; again++)
            ring(round + again);
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
            pairs(sizes[i], round + (int)i);
        for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int root = 0; root < ranks; root++)
                collectives(counts[i], round * ranks + root);
    }
    // Part of the ranks, among themselves.
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    int expected = 0;
    for (int other = rank % 2; other < ranks; other += 2)
        expected += other;
    CHECK(sum == expected, "half: %d", sum);
    MPI_Comm_free(&half);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("messages: %d ranks, %d rounds, all right\n", ranks, rounds);
    MPI_Finalize();
    return 0;
}
