/* Two ranks send a message to and fro. Prints half a round trip in microseconds: the median of the rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 8, rounds = argc > 2 ? atoi(argv[2]) : 1000, rank;
    char *bytes = calloc(size, 1);
    double *times = calloc(rounds, sizeof *times);
    if (!bytes || !times)
        return 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* The first ones make the connection. */
    for (int round = -100; round < rounds; round++) {
        double before = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
        if (round >= 0)
            times[round] = (MPI_Wtime() - before) * 1e6 / 2;
    }
    qsort(times, rounds, sizeof *times, by_size);
    if (rank == 0)
        printf("median %.2f\n", times[rounds / 2]);
    MPI_Finalize();
    return 0;
}
