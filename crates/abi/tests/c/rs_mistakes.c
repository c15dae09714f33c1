/* Every call of rsockets in states where it must fail, with the error number that programs expect; and what becomes of
 * a connection whose peer goes, in good order or killed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rsocket.h>

static int surprises;
#define WAIT 60000

#define IS(call, wanted) do { \
	long got_ = (call); \
	if (got_ != (long)(wanted)) { \
		surprises++; \
		printf("line %d: %s is %ld, errno %d\n", __LINE__, #call, got_, errno); \
	} \
} while (0)

#define FAILS(call, code) do { \
	errno = 0; \
	long got_ = (call); \
	if (got_ != -1 || errno != (code)) { \
		surprises++; \
		printf("line %d: %s is %ld, errno %d, not %s\n", __LINE__, #call, got_, errno, #code); \
	} \
} while (0)

static struct sockaddr_in at(const char *address, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	inet_pton(AF_INET, address, &in.sin_addr);
	return in;
}

#define SA(in) (struct sockaddr *)&(in), sizeof(in)

static int ready(int fd, short events)
{
	struct pollfd entry = { .fd = fd, .events = events };
	int count = rpoll(&entry, 1, WAIT);
	return count == 1 ? entry.revents : -1;
}

static int listening(const char *address, int port)
{
	struct sockaddr_in in = at(address, port);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	IS(rbind(fd, SA(in)), 0);
	IS(rlisten(fd, 8), 0);
	return fd;
}

static void strangers(void)
{
	char byte = 0;
	int number = 0;
	socklen_t len = sizeof(number);
	struct sockaddr_in in = at("127.0.0.1", 1);
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int strange[] = { -1, 0, 4711 };
	for (int i = 0; i < 3; i++) {
		int fd = strange[i];
		FAILS(rbind(fd, SA(in)), EBADF);
		FAILS(rlisten(fd, 1), EBADF);
		FAILS(raccept(fd, NULL, NULL), EBADF);
		FAILS(rconnect(fd, SA(in)), EBADF);
		FAILS(rshutdown(fd, SHUT_RDWR), EBADF);
		FAILS(rclose(fd), EBADF);
		FAILS(rrecv(fd, &byte, 1, 0), EBADF);
		FAILS(rrecvfrom(fd, &byte, 1, 0, NULL, NULL), EBADF);
		FAILS(rrecvmsg(fd, &message, 0), EBADF);
		FAILS(rread(fd, &byte, 1), EBADF);
		FAILS(rreadv(fd, &part, 1), EBADF);
		FAILS(rsend(fd, &byte, 1, 0), EBADF);
		FAILS(rsendto(fd, &byte, 1, 0, NULL, 0), EBADF);
		FAILS(rsendmsg(fd, &message, 0), EBADF);
		FAILS(rwrite(fd, &byte, 1), EBADF);
		FAILS(rwritev(fd, &part, 1), EBADF);
		FAILS(rgetpeername(fd, (struct sockaddr *)&in, &len), EBADF);
		FAILS(rgetsockname(fd, (struct sockaddr *)&in, &len), EBADF);
		FAILS(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &number, sizeof(number)), EBADF);
		FAILS(rgetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &number, &len), EBADF);
		FAILS(rfcntl(fd, F_GETFL), EBADF);
		FAILS(riomap(fd, &byte, 1, PROT_WRITE, 0, -1), EBADF);
		FAILS(riounmap(fd, &byte, 1), EBADF);
		FAILS((long)riowrite(fd, &byte, 1, 0, 0), EBADF);
	}
	FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_STREAM, 99), ENOTSUP);
}

static void wrong_states(const char *address, int port)
{
	char byte = 0;
	int number = 1;
	struct sockaddr_in in = at(address, port), out = { 0 };
	socklen_t len = sizeof(out);
	int fd = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	FAILS(raccept(fd, NULL, NULL), EINVAL);
	FAILS(rsend(fd, &byte, 1, 0), ENOTCONN);
	FAILS(rrecv(fd, &byte, 1, 0), ENOTCONN);
	FAILS(rshutdown(fd, SHUT_RDWR), ENOTCONN);
	FAILS(rgetpeername(fd, (struct sockaddr *)&out, &len), ENOTCONN);
	FAILS(rsetsockopt(fd, SOL_SOCKET, 9999, &number, sizeof(number)), ENOPROTOOPT);
	FAILS(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &number, 1), EINVAL);
	FAILS(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, NULL, 4), EFAULT);
	FAILS(rbind(fd, NULL, 0), EFAULT);
	FAILS(rbind(fd, (struct sockaddr *)&in, 3), EINVAL);
	FAILS(rconnect(fd, SA(in)), ECONNREFUSED);
	IS(rclose(fd), 0);
	FAILS(rclose(fd), EBADF);

	int listener = listening(address, port);
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	FAILS(rbind(fd, SA(in)), EADDRINUSE);
	FAILS(rconnect(listener, SA(in)), EINVAL);
	IS(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
	IS(rfcntl(listener, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	FAILS(raccept(listener, NULL, NULL), EAGAIN);
	IS(rclose(fd), 0);
	IS(rclose(listener), 0);
}

/* Two ends of a connection, of one thread. */
static void pair(int listener, const char *address, int port, int *here, int *there)
{
	struct sockaddr_in in = at(address, port);
	int error = -1;
	socklen_t len = sizeof(error);
	*here = rsocket(AF_INET, SOCK_STREAM, 0);
	IS(rfcntl(*here, F_SETFL, O_NONBLOCK), 0);
	FAILS(rconnect(*here, SA(in)), EINPROGRESS);
	IS(ready(listener, POLLIN), POLLIN);
	*there = raccept(listener, NULL, NULL);
	IS(*there >= 0, 1);
	IS(ready(*here, POLLOUT), POLLOUT);
	IS(rgetsockopt(*here, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	IS(error, 0);
	FAILS(rconnect(*here, SA(in)), EISCONN);
	IS(rfcntl(*there, F_SETFL, O_NONBLOCK), 0);
}

static void bytes(int here, int there)
{
	static unsigned char sent[3 << 20], got[3 << 20];
	char word[16] = { 0 };
	FAILS(rrecv(there, word, 4, 0), EAGAIN);
	FAILS(rrecv(there, word, 4, MSG_DONTWAIT), EAGAIN);
	IS(rsend(here, "abcd", 4, 0), 4);
	IS(ready(there, POLLIN), POLLIN);
	IS(rrecv(there, word, 2, MSG_PEEK), 2);
	IS(rrecv(there, word, sizeof(word), MSG_PEEK), 4);
	IS(rrecv(there, word, 1, 0), 1);
	IS(rrecv(there, word, sizeof(word), 0), 3);
	IS(memcmp(word, "bcd", 3), 0);
	FAILS(rsendto(here, "a", 1, 0, (struct sockaddr *)word, 16), EISCONN);

	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = i * 31 >> 3;
	size_t out = 0, in = 0;
	long some;
	/* Nothing is read meanwhile: there is an end to what can be sent. */
	while (out < sizeof(sent) && (some = rsend(here, sent + out, sizeof(sent) - out, 0)) > 0)
		out += some;
	IS(out < sizeof(sent), 1);
	IS(some, -1);
	IS(errno, EAGAIN);
	while (in < sizeof(got)) {
		IS(ready(there, POLLIN) & POLLIN, POLLIN);
		some = rrecv(there, got + in, sizeof(got) - in, 0);
		if (some <= 0) {
			surprises++;
			printf("%zu bytes came, then %ld, errno %d\n", in, some, errno);
			break;
		}
		in += some;
		some = out < sizeof(sent) ? rsend(here, sent + out, sizeof(sent) - out, 0) : 0;
		out += some > 0 ? some : 0;
	}
	IS(memcmp(sent, got, sizeof(got)), 0);

	/* Select knows both kinds of descriptors. */
	int ends[2];
	fd_set reads;
	struct timeval limit = { .tv_sec = 60 };
	IS(pipe(ends), 0);
	IS(rwrite(here, "x", 1), 1);
	IS(write(ends[1], "x", 1), 1);
	IS(ready(there, POLLIN), POLLIN);
	FD_ZERO(&reads);
	FD_SET(there, &reads);
	FD_SET(ends[0], &reads);
	IS(rselect((there > ends[0] ? there : ends[0]) + 1, &reads, NULL, NULL, &limit), 2);
	IS(FD_ISSET(there, &reads) && FD_ISSET(ends[0], &reads), 1);
	/* A program may give a set that is only as long as its descriptors need. */
	int bits = 8 * sizeof(long), needed = there / bits + 1;
	unsigned long *words = malloc((needed + 2) * sizeof(long));
	memset(words, 0, needed * sizeof(long));
	words[needed] = words[needed + 1] = -1ul;
	words[there / bits] |= 1ul << there % bits;
	IS(rselect(there + 1, (fd_set *)words, NULL, NULL, &limit), 1);
	IS(words[there / bits] >> there % bits & 1, 1);
	IS(words[needed] == -1ul && words[needed + 1] == -1ul, 1);
	free(words);
	/* Nothing is said of an entry without a descriptor. */
	struct pollfd entries[2] = { { .fd = -1, .events = POLLIN, .revents = POLLIN },
				     { .fd = there, .events = POLLIN } };
	IS(rpoll(entries, 2, WAIT), 1);
	IS(entries[0].revents, 0);
	IS(rread(there, word, 1), 1);
	close(ends[0]);
	close(ends[1]);
}

static void endings(int listener, const char *address, int port)
{
	char byte;
	int here, there;
	pair(listener, address, port, &here, &there);
	IS(rsend(here, "z", 1, 0), 1);
	IS(rshutdown(here, SHUT_WR), 0);
	FAILS(rsend(here, "z", 1, 0), EPIPE);
	IS(ready(there, POLLIN) & POLLIN, POLLIN);
	IS(rrecv(there, &byte, 1, 0), 1);
	IS(ready(there, POLLIN) & POLLIN, POLLIN);
	IS(rrecv(there, &byte, 1, 0), 0);
	/* The other direction stands. */
	IS(rsend(there, "y", 1, 0), 1);
	IS(ready(here, POLLIN) & POLLIN, POLLIN);
	IS(rrecv(here, &byte, 1, 0), 1);
	IS(rclose(there), 0);
	IS(ready(here, POLLIN) & POLLHUP, POLLHUP);
	IS(rrecv(here, &byte, 1, 0), 0);
	IS(rclose(here), 0);

	pair(listener, address, port, &here, &there);
	IS(rclose(here), 0);
	IS(ready(there, POLLIN) & POLLHUP, POLLHUP);
	IS(rrecv(there, &byte, 1, 0), 0);
	FAILS(rsend(there, "z", 1, 0), ECONNRESET);
	IS(rclose(there), 0);
}

/* The peer of a connection is killed. */
static void victim(const char *address, int port, int tell)
{
	int listener = listening(address, port);
	if (write(tell, "l", 1) != 1)
		exit(1);
	raccept(listener, NULL, NULL);
	if (write(tell, "a", 1) != 1)
		exit(1);
	for (;;)
		pause();
}

static void killed(const char *address, int port, pid_t pid, int told)
{
	char byte;
	struct sockaddr_in in = at(address, port);
	IS(read(told, &byte, 1), 1);
	/* While the peer is stopped, a connection does not come to stand. */
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	IS(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
	FAILS(rconnect(fd, SA(in)), EINPROGRESS);
	FAILS(rshutdown(fd, SHUT_WR), ENOTCONN);
	FAILS(rconnect(fd, SA(in)), EALREADY);
	IS(rclose(fd), 0);
	kill(pid, SIGCONT);
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	IS(rconnect(fd, SA(in)), 0);
	IS(read(told, &byte, 1), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	FAILS(rrecv(fd, &byte, 1, 0), ECONNRESET);
	FAILS(rsend(fd, "z", 1, 0), ECONNRESET);
	IS(rclose(fd), 0);
}

int main(int count, char **args)
{
	const char *address = count > 1 ? args[1] : "127.0.0.1";
	int told[2], here, there;
	if (pipe(told))
		return 1;
	pid_t pid = fork();
	if (pid == 0)
		victim(address, 7602, told[1]);
	strangers();
	wrong_states(address, 7600);
	int listener = listening(address, 7601);
	pair(listener, address, 7601, &here, &there);
	bytes(here, there);
	IS(rclose(here), 0);
	IS(rclose(there), 0);
	endings(listener, address, 7601);
	IS(rclose(listener), 0);
	killed(address, 7602, pid, told[0]);
	printf("%d surprises\n", surprises);
	return surprises != 0;
}
