//! The system calls that the standard library does not make.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::Settings;
use crate::samples::quoted;

/// Keeps this process, and threads that it starts from now on, on one core.
pub(crate) fn pin_if(wanted: bool, core: usize) -> io::Result<()> {
    if !wanted {
        return Ok(());
    }
    // SAFETY: a set of cores is plain data, for which all zeroes is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set lives on this stack, and the core is one of the first two.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the pointer is to a set of this size, which lives during the call.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Processor time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value that lives during the call.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Processor time of processes that this one has started and waited for.
fn cpu_time_of_children() -> Duration {
    // SAFETY: usage is plain data, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a usage that lives during the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let span = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// How busy the machine is, and how much of it is our doing.
#[derive(Debug)]
pub(crate) struct Bystanders {
    begin: Instant,
    machine: Duration,
    ours: Duration,
}

impl Bystanders {
    pub(crate) fn watch() -> Self {
        let ours = cpu_time() + cpu_time_of_children();
        Self { begin: Instant::now(), machine: machine_time(), ours }
    }

    /// Cores that others have kept busy since, the host included.
    pub(crate) fn cores(&self) -> f64 {
        let machine = machine_time().saturating_sub(self.machine);
        let ours = (cpu_time() + cpu_time_of_children()).saturating_sub(self.ours);
        machine.saturating_sub(ours).as_secs_f64() / self.begin.elapsed().as_secs_f64()
    }
}

/// Processor time that was not idle, of all cores; from the first line of `/proc/stat`.
fn machine_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let columns: Vec<u64> = first.split_whitespace().skip(1).map(|n| n.parse().unwrap_or(0)).collect();
    // user, nice, system, (idle, iowait,) irq, softirq, steal: in hundredths of a second.
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| columns.get(*at)).sum();
    Duration::from_millis(10 * busy)
}

/// An event counter that blocks its reader.
pub(crate) fn event_file() -> io::Result<File> {
    // SAFETY: takes and gives plain numbers.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just made this descriptor, and nothing else knows it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// Lets the kernel cut what is sent into segments of this size.
pub(crate) fn cut_into(socket: &UdpSocket, segment: usize) -> io::Result<()> {
    let segment = libc::c_int::try_from(segment).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment)
}

/// Lets the kernel hand over as one what was sent as one.
pub(crate) fn join_segments(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Asks for so large a receive buffer, as a device does.
pub(crate) fn set_receive_buffer(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Bytes of memory that this process has touched and keeps.
pub(crate) fn resident() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    // SAFETY: takes and gives plain numbers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
    pages.map(|pages| pages * page).ok_or_else(|| io::Error::other("/proc/self/statm says nothing"))
}

fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let from = (&raw const value).cast();
    // SAFETY: the pointer is to an integer of this size, which lives during the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, from, 4) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Cores of the machine, of which the affinity of this process says nothing.
pub(crate) fn cores() -> usize {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines().filter(|line| line.starts_with("processor")).count()
}

/// What this machine is like, as a line of JSON.
pub(crate) fn machine(settings: &Settings) -> String {
    let first_line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!(
        "{{\"kind\":\"machine\",\"processor\":{},\"cores\":{},\"kernel\":{},\"rmem_max\":{},\"load\":{},\
         \"repeats\":{},\"millis\":{},\"pinned\":{}}}",
        quoted(model.map_or("unknown", |(_, name)| name)),
        cores(),
        quoted(&first_line("/proc/sys/kernel/osrelease")),
        quoted(&first_line("/proc/sys/net/core/rmem_max")),
        quoted(&first_line("/proc/loadavg")),
        settings.repeats,
        settings.duration.as_millis(),
        settings.pin,
    )
}
