#!/bin/bash
# Builds the guest of the interoperability tests from Debian packages: a kernel with rdma_rxe, and an initramfs.
#
#   mkguest.sh DIRECTORY      makes vmlinuz, initramfs.zst and versions there; downloads stay in debs
#
# The kernel is the one that the archive offers now. Nothing is taken from the host but the tools that do the
# work and the headers of libibverbs that peer.c and probe.c are compiled against. `cargo xtask interop` calls this
# when needed.
set -euo pipefail

OUT=$1
HERE=$(cd "$(dirname "$0")" && pwd)
DEBS=$OUT/debs STAGE=$OUT/stage ROOT=$OUT/root
ROOTS="iproute2 ibverbs-utils rdmacm-utils perftest ibverbs-providers iperf3 nftables busybox-static dash"
# Programs that go into the image; their libraries are found by what they need.
PROGRAMS="dash ip tc ss rdma nft iperf3 ibv_* rping ucmatose udaddy mckey cmtime rdma_client rdma_server rdma_xclient rdma_xserver
 rstream riostream rcopy udpong
 ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw ib_atomic_lat"
# What probe.c is compiled against, and the guest does not get.
HEADERS=librdmacm-dev
# Names as modprobe knows them; what the kernel has built in is skipped.
MODULES="virtio_pci virtio_net virtio_console virtio_rng crc32_generic crc32_pclmul ib_core ib_uverbs rdma_cm
 rdma_ucm rdma_rxe veth sch_netem nf_tables"

fail() { echo "$*" >&2; exit 1; }

closure() { # the packages that these need, without what only their installation needs
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
    --no-enhances "$@" | grep -E '^z?lib[^:]*$' | grep -Ev '^libperl|-perl$|^libdebian-installer|^libpam|-bin$' | sort -u
}

download() { # package... into debs, unless they are there
  local missing=() p
  for p in "$@"; do compgen -G "$DEBS/${p}_*.deb" >/dev/null || missing+=("$p"); done
  [ ${#missing[@]} -eq 0 ] && return
  (cd "$DEBS" && apt-get download -qq -o APT::Sandbox::User=root "${missing[@]}") \
    || fail "apt-get could not download ${missing[*]}: run apt-get update, and see whether the archive can be reached"
}

unpack() { dpkg-deb -x "$(ls "$DEBS/$1"_*.deb | tail -1)" "$2"; }

find_library() { # soname -> file
  local f
  for f in "$STAGE"/{usr/lib,lib}/x86_64-linux-gnu/"$1" "$STAGE/lib64/$1"; do
    [ -e "$f" ] && { echo "$f"; return; }
  done
  return 1
}

declare -A taken
take_libraries() { # everything that an ELF file needs
  local name file
  for name in $(readelf -d "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [ -n "${taken[$name]:-}" ] && continue
    taken[$name]=1
    [ "$name" = ld-linux-x86-64.so.2 ] && continue
    file=$(find_library "$name") || fail "no package has the library $name, which ${1##*/} needs"
    cp -L "$file" "$ROOT/usr/lib/x86_64-linux-gnu/$name"
    take_libraries "$file"
  done
}

kernel_package() { apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p'; }

[ -n "$(kernel_package)" ] || apt-get update -qq || true
KERNEL=$(kernel_package)
[ -n "$KERNEL" ] || fail "the archive offers no linux-image-amd64: run apt-get update on a Debian for amd64"
VERSION=${KERNEL#linux-image-}

mkdir -p "$DEBS"
rm -rf "$STAGE" "$ROOT"
mkdir -p "$STAGE"
# Lists of several packages, split on purpose.
# shellcheck disable=SC2046,SC2086
download "$KERNEL" $HEADERS $ROOTS $(closure $ROOTS)
# shellcheck disable=SC2046,SC2086
for p in $HEADERS $ROOTS $(closure $ROOTS); do unpack "$p" "$STAGE"; done
unpack "$KERNEL" "$STAGE"
MODDIR=$STAGE/lib/modules/$VERSION
[ -d "$MODDIR" ] || MODDIR=$STAGE/usr/lib/modules/$VERSION
depmod -b "${MODDIR%/lib/modules/*}" "$VERSION"

# The skeleton. Debian's busybox runs its own applets before PATH, and its ip knows too little: the shell is dash.
mkdir -p "$ROOT"/{bin,sbin,dev,proc,sys,run,tmp,etc/libibverbs.d,root,usr/bin,usr/sbin,usr/lib/x86_64-linux-gnu,lib64,lib,var}
ln -s ../run "$ROOT/var/run"
ln -s ../usr/lib/x86_64-linux-gnu "$ROOT/lib/x86_64-linux-gnu"
cp "$(ls "$STAGE"/{usr/bin,bin}/busybox 2>/dev/null | head -1)" "$ROOT/bin/busybox"
for applet in $("$ROOT/bin/busybox" --list); do
  case $applet in busybox | ip | tc | sh) ;; *) ln -s /bin/busybox "$ROOT/bin/$applet" ;; esac
done
ln -s /usr/bin/dash "$ROOT/bin/sh"
# The kernel calls it by this name.
ln -s /bin/busybox "$ROOT/sbin/modprobe"
printf '%s\n' 'root:x:0:0:root:/:/bin/sh' 'nobody:x:65534:65534:nobody:/:/bin/sh' >"$ROOT/etc/passwd"
echo '127.0.0.1 localhost' >"$ROOT/etc/hosts"

cp -L "$(find_library ld-linux-x86-64.so.2)" "$ROOT/lib64/"
for name in $PROGRAMS; do
  found=
  for file in "$STAGE"/{bin,sbin,usr/bin,usr/sbin}/$name; do
    [ -f "$file" ] || continue
    found=1
    cp -L "$file" "$ROOT/usr/bin/"
    take_libraries "$file"
  done
  [ -n "$found" ] || fail "no package has the program $name"
done
# Threads that are cancelled are unwound with it; nothing names it.
cp -L "$(find_library libgcc_s.so.1)" "$ROOT/usr/lib/x86_64-linux-gnu/"
mkdir -p "$ROOT/usr/lib/x86_64-linux-gnu/libibverbs"
for file in "$STAGE"/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav*.so; do
  cp -L "$file" "$ROOT/usr/lib/x86_64-linux-gnu/libibverbs/"
  take_libraries "$file"
done
cp "$STAGE/etc/libibverbs.d/rxe.driver" "$ROOT/etc/libibverbs.d/"
gcc -O2 -Wall -Wextra -o "$ROOT/usr/bin/peer" "$HERE/peer.c" -libverbs
gcc -O2 -Wall -Wextra -o "$ROOT/usr/bin/raw" "$HERE/raw.c"
gcc -O2 -Wall -Wextra -o "$ROOT/usr/bin/probe" "$HERE/probe.c" -I"$STAGE/usr/include" \
  -L"$STAGE/usr/lib/x86_64-linux-gnu" -lrdmacm -libverbs
take_libraries "$ROOT/usr/bin/probe"
install -m 755 "$HERE/init" "$ROOT/init"

# Modules with what they need, without their symbols for debugging.
for m in $MODULES; do
  modprobe -d "${MODDIR%/lib/modules/*}" -S "$VERSION" --show-depends --ignore-install "$m" 2>/dev/null \
    | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | sort -u | while read -r file; do
  to=$ROOT/lib/modules/$VERSION/${file#"$MODDIR/"}
  mkdir -p "${to%/*}"
  cp "$file" "$to"
done
cp "$MODDIR"/modules.{builtin,builtin.modinfo,order} "$ROOT/lib/modules/$VERSION/"
depmod -b "$ROOT" "$VERSION"
find "$ROOT/lib/modules" -name '*.ko' -exec strip --strip-debug {} +

cp "$STAGE/boot/vmlinuz-$VERSION" "$OUT/vmlinuz"
(cd "$ROOT" && find . -print0 | LC_ALL=C sort -z | cpio --null -o -H newc --quiet) | zstd -q -f -10 -o "$OUT/initramfs.zst"
for p in "$KERNEL" libibverbs1 ibverbs-utils perftest iperf3 iproute2; do
  deb=$(ls "$DEBS/$p"_*.deb | tail -1)
  echo "$p $(dpkg-deb -f "$deb" Version)"
done >"$OUT/versions"
rm -rf "$STAGE" "$ROOT"
