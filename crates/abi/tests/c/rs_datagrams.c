/* Datagram sockets of rsockets: mistakes with the error numbers that programs expect, messages of all sizes and forms, and
 * what strangers may send to the UDP socket behind one. A plain UDP socket plays the stranger, and a peer. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <rdma/rsocket.h>

static int surprises;
#define WAIT 60000
#define LONGEST 2040

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

/* A socket that never waits. */
static int bound(const char *address, int port)
{
	struct sockaddr_in in = at(address, port);
	int fd = rsocket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	IS(fd >= 0, 1);
	IS(rbind(fd, SA(in)), 0);
	return fd;
}

static int port_of(int fd)
{
	struct sockaddr_in in = { 0 };
	socklen_t len = sizeof(in);
	IS(rgetsockname(fd, (struct sockaddr *)&in, &len), 0);
	IS(len, sizeof(in));
	return ntohs(in.sin_port);
}

static void mistakes(const char *address)
{
	static char bytes[LONGEST + 1];
	int number = 0;
	struct sockaddr_in in = at(address, 7610), nowhere = at(address, 0), out = { 0 };
	struct sockaddr_in6 other = { .sin6_family = AF_INET6, .sin6_port = htons(7610), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t len = sizeof(out);
	FAILS(rsocket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), ENOTSUP);
	FAILS(rsocket(AF_UNIX, SOCK_DGRAM, 0), ENOTSUP);
	FAILS(rsocket(AF_INET, SOCK_SEQPACKET, 0), ENOTSUP);

	int fd = rsocket(AF_INET, SOCK_DGRAM, IPPROTO_UDP);
	FAILS(rlisten(fd, 1), EOPNOTSUPP);
	FAILS(raccept(fd, NULL, NULL), EOPNOTSUPP);
	FAILS(rsend(fd, bytes, 1, 0), EDESTADDRREQ);
	FAILS(rwrite(fd, bytes, 1), EDESTADDRREQ);
	FAILS(rrecv(fd, bytes, 1, MSG_DONTWAIT), EAGAIN);
	FAILS(rgetpeername(fd, (struct sockaddr *)&out, &len), ENOTCONN);
	FAILS(rshutdown(fd, SHUT_RDWR), ENOTCONN);
	FAILS(rsendto(fd, bytes, 1, 0, SA(other)), EAFNOSUPPORT);
	FAILS(rsendto(fd, bytes, 1, 0, SA(nowhere)), EINVAL);
	FAILS(rsendto(fd, bytes, 1, 0, (struct sockaddr *)&in, 3), EINVAL);
	FAILS(rsendto(fd, NULL, 1, 0, SA(in)), EFAULT);
	FAILS(rsendto(fd, bytes, LONGEST + 1, 0, SA(in)), EMSGSIZE);
	FAILS(rconnect(fd, SA(other)), EAFNOSUPPORT);
	FAILS(rconnect(fd, NULL, 0), EFAULT);
	FAILS(rbind(fd, SA(other)), EAFNOSUPPORT);
	FAILS(rbind(fd, NULL, 0), EFAULT);
	FAILS(rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &number, sizeof(number)), ENOPROTOOPT);
	FAILS(riomap(fd, bytes, 1, PROT_WRITE, 0, -1), ENOTCONN);
	len = sizeof(number);
	IS(rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &number, &len), 0);
	IS(number, SOCK_DGRAM);
	IS(rbind(fd, SA(in)), 0);
	FAILS(rbind(fd, SA(in)), EINVAL);
	IS(port_of(fd), 7610);
	IS(ready(fd, POLLIN | POLLOUT), POLLOUT);

	int second = rsocket(AF_INET, SOCK_DGRAM, 0);
	FAILS(rbind(second, SA(in)), EADDRINUSE);
	struct timeval limit = { .tv_usec = 20000 };
	IS(rsetsockopt(second, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	FAILS(rrecv(second, bytes, 1, 0), EAGAIN);
	IS(rconnect(second, SA(in)), 0);
	len = sizeof(out);
	IS(rgetpeername(second, (struct sockaddr *)&out, &len), 0);
	IS(ntohs(out.sin_port), 7610);
	IS(rshutdown(second, SHUT_WR), 0);
	FAILS(rsend(second, bytes, 1, 0), EPIPE);
	FAILS(rshutdown(second, 17), EINVAL);
	IS(rshutdown(second, SHUT_RD), 0);
	IS(rrecv(second, bytes, 1, 0), 0);
	IS(rclose(second), 0);
	FAILS(rrecv(second, bytes, 1, 0), EBADF);
	IS(rclose(fd), 0);
	FAILS(rclose(fd), EBADF);
	/* A port is free as soon as its socket is closed. */
	for (int i = 0; i < 50; i++) {
		fd = bound(address, 7610);
		IS(rclose(fd), 0);
	}
}

/* Waits for a message that begins with this number: earlier ones, sent twice, may come too. */
static long numbered(int fd, void *to, size_t room, unsigned number, struct sockaddr_in *from)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };
	while (rpoll(&entry, 1, 1000) == 1) {
		socklen_t len = sizeof(*from);
		long got = rrecvfrom(fd, to, room, 0, (struct sockaddr *)from, &len);
		if (got >= (long)sizeof(number) && memcmp(to, &number, sizeof(number)) == 0)
			return got;
	}
	return -1;
}

/* Messages of all sizes, there and back. The other end may be bound to all addresses. */
static void messages(const char *theirs, const char *address)
{
	static unsigned char sent[LONGEST], got[LONGEST + 10];
	int there = bound(theirs, 7611), here = rsocket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	struct sockaddr_in to = at(address, 7611), from;
	IS(rconnect(here, SA(to)), 0);
	for (unsigned number = 1; number <= 200; number++) {
		size_t size = number == 200 ? LONGEST : sizeof(number) + number * 10;
		for (size_t i = 0; i < size; i++)
			sent[i] = i * 31 + number;
		memcpy(sent, &number, sizeof(number));
		long came = -1;
		for (int tries = 0; came < 0 && tries < 60; tries++) {
			IS(rsend(here, sent, size, 0), size);
			came = numbered(there, got, sizeof(got), number, &from);
		}
		IS(came, size);
		IS(memcmp(sent, got, size), 0);
		IS(from.sin_addr.s_addr, to.sin_addr.s_addr);
		IS(ntohs(from.sin_port), port_of(here));
		came = -1;
		for (int tries = 0; came < 0 && tries < 60; tries++) {
			struct sockaddr_in peer;
			IS(rsendto(there, sent, size, 0, SA(from)), size);
			came = numbered(here, got, sizeof(got), number, &peer);
			IS(came < 0 || ntohs(peer.sin_port) == 7611, 1);
		}
		IS(came, size);
		IS(memcmp(sent, got, size), 0);
	}

	/* In parts, cut, and looked at; an empty one. */
	char ab[8] = "ab", cd[8] = "cde", one[3] = { 0 }, two[8] = { 0 };
	struct iovec parts[] = { { ab, 2 }, { cd, 3 } }, rooms[] = { { one, 1 }, { two, 2 } };
	struct msghdr out = { .msg_iov = parts, .msg_iovlen = 2, .msg_name = &to, .msg_namelen = sizeof(to) };
	struct msghdr in = { .msg_iov = rooms, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof(from) };
	IS(rsendmsg(here, &out, 0), 5);
	IS(ready(there, POLLIN), POLLIN);
	IS(rrecv(there, two, sizeof(two), MSG_PEEK), 5);
	IS(rrecv(there, two, 1, MSG_PEEK | MSG_TRUNC), 5);
	IS(rrecvmsg(there, &in, 0), 3);
	IS(in.msg_flags & MSG_TRUNC, MSG_TRUNC);
	IS(in.msg_namelen, sizeof(from));
	IS(ntohs(from.sin_port), port_of(here));
	IS(one[0] == 'a' && two[0] == 'b' && two[1] == 'c', 1);
	FAILS(rrecv(there, two, sizeof(two), 0), EAGAIN);
	IS(rsend(here, "", 0, 0), 0);
	IS(ready(there, POLLIN), POLLIN);
	IS(rrecv(there, two, sizeof(two), 0), 0);

	/* Select knows both kinds of descriptors. */
	fd_set reads;
	int ends[2];
	struct timeval limit = { .tv_sec = 60 };
	IS(pipe(ends), 0);
	IS(write(ends[1], "x", 1), 1);
	IS(rwrite(here, "x", 1), 1);
	IS(ready(there, POLLIN), POLLIN);
	FD_ZERO(&reads);
	FD_SET(there, &reads);
	FD_SET(ends[0], &reads);
	IS(rselect((there > ends[0] ? there : ends[0]) + 1, &reads, NULL, NULL, &limit), 2);
	close(ends[0]);
	close(ends[1]);

	/* A socket that is connected hears its peer only. */
	int third = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in own = at(address, port_of(here));
	IS(rsendto(third, "stranger", 8, 0, SA(own)), 8);
	IS(rread(there, two, sizeof(two)), 1);
	IS(rsendto(there, "peer", 4, 0, SA(own)), 4);
	IS(ready(here, POLLIN), POLLIN);
	IS(rrecv(here, two, sizeof(two), 0), 4);
	IS(memcmp(two, "peer", 4), 0);
	IS(rclose(third), 0);
	IS(rclose(here), 0);
	IS(rclose(there), 0);
}

/* More at once than there is room for: some are lost, and the socket goes on. */
static void flood(const char *address)
{
	char bytes[LONGEST] = { 0 };
	int there = bound(address, 7612), here = rsocket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = at(address, 7612), from;
	unsigned number = 4711;
	long came = -1;
	IS(rconnect(here, SA(to)), 0);
	for (int i = 0; i < 20000; i++)
		IS(rsend(here, bytes, 1000, 0), 1000);
	for (int tries = 0; came < 0 && tries < 60; tries++) {
		memcpy(bytes, &number, sizeof(number));
		IS(rsend(here, bytes, 100, 0), 100);
		came = numbered(there, bytes, sizeof(bytes), number, &from);
	}
	IS(came, 100);
	IS(rclose(here), 0);
	IS(rclose(there), 0);
}

struct envelope {
	uint8_t tag[4], version, op, length, reserved;
	uint32_t qpn, address;
	char message[LONGEST + 64];
};

#define HEAD 16
#define DATA 0
#define ANSWER 7

static struct envelope envelope(int op, unsigned qpn, struct in_addr to, const char *message)
{
	struct envelope made = {
		.tag = { 0x55, 0x55, 0x55, 0x55 }, .version = 4, .op = op, .length = HEAD, .qpn = htonl(qpn), .address = to.s_addr,
	};
	strcpy(made.message, message);
	return made;
}

static long tell(int plain, const struct sockaddr_in *to, const struct envelope *what, size_t len)
{
	return sendto(plain, what, len, 0, (const struct sockaddr *)to, sizeof(*to));
}

/* How many answers wait, and the queue pair that the last one tells of. */
static int answers(int plain, unsigned *qpn)
{
	struct envelope got;
	int count = 0;
	for (;;) {
		long len = recv(plain, &got, sizeof(got), MSG_DONTWAIT);
		if (len < 0)
			return count;
		IS(len, HEAD);
		IS(got.op, ANSWER);
		*qpn = ntohl(got.qpn);
		count++;
	}
}

/* A plain socket, and its address. */
static int stranger(const char *address, struct sockaddr_in *own)
{
	socklen_t len = sizeof(*own);
	int plain = socket(AF_INET, SOCK_DGRAM, 0);
	*own = at(address, 0);
	IS(bind(plain, (struct sockaddr *)own, len), 0);
	IS(getsockname(plain, (struct sockaddr *)own, &len), 0);
	return plain;
}

static void strangers(const char *address)
{
	char word[64];
	unsigned qpn = 0, theirs = 0;
	struct sockaddr_in own, to = at(address, 7613), other = at(address, 7614), from;
	socklen_t len = sizeof(from);
	int plain = stranger(address, &own);
	int here = bound(address, 7613), there = bound(address, 7614);

	/* What is no envelope is neither answered nor told. */
	struct envelope good = envelope(DATA, 77, to.sin_addr, "good"), bad;
	for (size_t cut = 0; cut < HEAD; cut++)
		IS(tell(plain, &to, &good, cut), cut);
	unsigned char *byte = (unsigned char *)&bad;
	static const struct { int at, value; } wrong[] = {
		{ 0, 0 }, { 3, 0x54 }, { 4, 0 }, { 4, 6 }, { 4, 255 }, { 5, 1 }, { 5, 255 }, { 6, 0 }, { 6, 15 }, { 6, 17 }, { 6, 28 },
		{ 6, 255 }, { 11, 0 }, { 11, 1 },
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		bad = good;
		byte[wrong[i].at] = wrong[i].value;
		IS(tell(plain, &to, &bad, HEAD + 4), HEAD + 4);
	}
	bad = good;
	bad.qpn = htonl(0xffffff);
	IS(tell(plain, &to, &bad, HEAD + 4), HEAD + 4);
	IS(tell(plain, &to, &good, HEAD + LONGEST + 1), HEAD + LONGEST + 1);
	IS(tell(plain, &to, &good, sizeof(good)), sizeof(good));
	srand(1);
	for (int i = 0; i < 500; i++) {
		for (size_t k = 4; k < sizeof(bad); k++)
			byte[k] = rand();
		bad.op |= 8;
		size_t size = rand() % sizeof(bad);
		IS(tell(plain, &to, &bad, size), size);
		/* The kernel's buffer does not hold all of them. */
		if (i % 10 == 9) {
			IS(tell(plain, &to, &good, HEAD + 4), HEAD + 4);
			IS(ready(here, POLLIN), POLLIN);
			IS(rrecvfrom(here, word, sizeof(word), 0, (struct sockaddr *)&from, &len), 4);
			IS(memcmp(word, "good", 4), 0);
			IS(from.sin_port, own.sin_port);
			IS(from.sin_addr.s_addr, own.sin_addr.s_addr);
			IS(answers(plain, &qpn), 1);
		}
	}
	FAILS(rrecv(here, word, sizeof(word), 0), EAGAIN);
	/* An answer to nothing changes nothing, and is not answered. */
	bad = envelope(ANSWER, 99, to.sin_addr, "");
	IS(tell(plain, &other, &bad, HEAD), HEAD);

	/* A stranger that only sends: what nothing reads has an end. */
	for (int i = 0; i < 3000; i++)
		tell(plain, &to, &good, HEAD + 4);
	int some = 0, last = 0;
	good = envelope(DATA, 77, to.sin_addr, "end");
	for (int tries = 0; !last && tries < 60; tries++) {
		struct pollfd entry = { .fd = here, .events = POLLIN };
		tell(plain, &to, &good, HEAD + 3);
		while (!last && rpoll(&entry, 1, 1000) == 1) {
			last = rrecv(here, word, sizeof(word), 0) == 3;
			some++;
		}
	}
	IS(last, 1);
	IS(some > 1 && some <= 3060, 1);
	close(plain);

	plain = stranger(address, &own);
	/* A peer: what is sent to it goes to the queue pair that it tells of, which is that of another socket here. */
	good = envelope(DATA, 77, other.sin_addr, "who");
	IS(tell(plain, &other, &good, HEAD + 3), HEAD + 3);
	IS(ready(there, POLLIN), POLLIN);
	IS(rrecv(there, word, sizeof(word), 0), 3);
	IS(answers(plain, &theirs), 1);
	int seen = 0;
	for (int tries = 0; !seen && tries < 60; tries++) {
		good = envelope(DATA, theirs, to.sin_addr, "me");
		IS(tell(plain, &to, &good, HEAD + 2), HEAD + 2);
		do {
			IS(ready(here, POLLIN), POLLIN);
		} while (rrecv(here, word, sizeof(word), 0) != 2);
		while (recv(plain, &bad, sizeof(bad), MSG_DONTWAIT) >= 0)
			;
		IS(rsendto(here, "by the card", 11, 0, SA(own)), 11);
		/* After a second the socket asks again. */
		if (recv(plain, &bad, sizeof(bad), MSG_DONTWAIT) >= 0)
			continue;
		IS(ready(there, POLLIN), POLLIN);
		len = sizeof(from);
		IS(rrecvfrom(there, word, sizeof(word), 0, (struct sockaddr *)&from, &len), 11);
		IS(memcmp(word, "by the card", 11), 0);
		IS(ntohs(from.sin_port), 7613);
		seen = 1;
	}
	IS(seen, 1);
	/* A queue pair that is not there, and an address that nothing has. */
	good = envelope(DATA, 0xfffffe, to.sin_addr, "me");
	IS(tell(plain, &to, &good, HEAD + 2), HEAD + 2);
	IS(ready(here, POLLIN), POLLIN);
	IS(rrecv(here, word, sizeof(word), 0), 2);
	for (int i = 0; i < 1000; i++)
		rsendto(here, "lost", 4, 0, SA(own));
	IS(ready(here, POLLOUT) & POLLOUT, POLLOUT);
	close(plain);
	IS(rclose(here), 0);
	IS(rclose(there), 0);
}

int main(int count, char **args)
{
	const char *address = count > 1 ? args[1] : "127.0.0.1";
	mistakes(address);
	messages(address, address);
	messages("0.0.0.0", address);
	flood(address);
	strangers(address);
	printf("%d surprises\n", surprises);
	return surprises != 0;
}
