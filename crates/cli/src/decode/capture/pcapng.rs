//! The newer format: blocks, each with its type, and its length in front and behind.
//!
//! Of a file's blocks only those are kept that frames need: the byte order of the
//! section and the interfaces. Others are read past, however long they say they are.

use super::input::{Input, Order};
use super::time::Resolution;
use super::trouble::{Place, Trouble};
use super::{Info, MAX_FRAME_LEN};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Options of an interface are looked at within this many bytes.
const MAX_OPTIONS_LEN: u32 = 1 << 16;

/// More interfaces in one section than any machine has.
const MAX_INTERFACES: usize = 1 << 16;

/// The section of a pcapng file that is being read.
#[derive(Debug)]
pub(super) struct PcapNg {
    order: Order,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    /// Bytes kept of a frame at most, 0 for all.
    snap_len: u32,
    resolution: Resolution,
}

impl PcapNg {
    /// Whether these are the first four bytes of a section.
    pub(super) fn recognise(magic: [u8; 4]) -> bool {
        magic == SECTION_HEADER.to_be_bytes()
    }

    /// A file of which nothing is read yet.
    pub(super) fn new() -> Self {
        Self { order: Order::Little, interfaces: Vec::new() }
    }

    /// Reads the next frame into `bytes`, or `None` at the end.
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        number: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Info>, Trouble> {
        while let Some(header) = input.array::<8>(Place::BlockHeader)? {
            let [kind, len] = self.order.words(&header);
            // This type reads the same in both byte orders, its length does not.
            if kind == SECTION_HEADER {
                self.section(input, [header[4], header[5], header[6], header[7]])?;
                continue;
            }
            let inside = match kind {
                OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET => Place::FrameBlock(number),
                _ => Place::Block(kind),
            };
            let mut block = Block::begin(input, inside, len, 8)?;
            let frame = match kind {
                INTERFACE_DESCRIPTION => {
                    self.interface(&mut block, bytes)?;
                    None
                }
                OBSOLETE_PACKET | ENHANCED_PACKET => Some(self.packet(&mut block, kind, number, bytes)?),
                SIMPLE_PACKET => Some(self.simple_packet(&mut block, number, bytes)?),
                _ => None,
            };
            block.end(self.order)?;
            if frame.is_some() {
                return Ok(frame);
            }
        }
        Ok(None)
    }

    /// A section begins: its byte order is new, and the interfaces before it are gone.
    fn section(&mut self, input: &mut Input, len: [u8; 4]) -> Result<(), Trouble> {
        let inside = Place::SectionHeader;
        let mut mark = [0; 4];
        let have = input.fill(&mut mark)? as u64;
        if have < 4 {
            return Err(Trouble::Truncated { inside, have: 8 + have, need: 28 });
        }
        self.order = match mark {
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            [a, b, c, d] => {
                let what = format!("byte-order mark {a:02x} {b:02x} {c:02x} {d:02x} of a pcapng section");
                return Err(Trouble::Damaged(what));
            }
        };
        self.interfaces.clear();
        let mut block = Block::begin(input, inside, self.order.u32(len), 12)?;
        let [a, b, c, d] = block.array()?;
        let (major, minor) = (self.order.u16([a, b]), self.order.u16([c, d]));
        if major != 1 {
            return Err(Trouble::Damaged(format!("pcapng version {major}.{minor}, expected 1.0")));
        }
        block.end(self.order)
    }

    fn interface(&mut self, block: &mut Block<'_>, bytes: &mut Vec<u8>) -> Result<(), Trouble> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Trouble::Damaged(format!("more than {MAX_INTERFACES} interfaces")));
        }
        let [a, b, _, _, snap_len @ ..] = block.array::<8>()?;
        let (link, snap_len) = (self.order.u16([a, b]).into(), self.order.u32(snap_len));
        block.bytes(block.left().min(MAX_OPTIONS_LEN), bytes)?;
        let resolution = self.resolution(bytes)?;
        self.interfaces.push(Interface { link, snap_len, resolution });
        Ok(())
    }

    /// How the options of an interface say that it counts time.
    fn resolution(&self, mut options: &[u8]) -> Result<Resolution, Trouble> {
        const END: u16 = 0;
        const UNIT: u16 = 9;
        const OFFSET: u16 = 14;
        let mut resolution = Resolution::DEFAULT;
        while let Some(([a, b, c, d], rest)) = options.split_first_chunk() {
            let (code, len) = (self.order.u16([*a, *b]), usize::from(self.order.u16([*c, *d])));
            let Some(value) = rest.get(..len) else { break };
            resolution = match (code, value) {
                (END, _) => break,
                (UNIT, &[unit]) => match resolution.with_unit(unit) {
                    Some(resolution) => resolution,
                    None => {
                        let what = format!("time unit 0x{unit:02x} of interface {}", self.interfaces.len());
                        return Err(Trouble::Damaged(what));
                    }
                },
                (OFFSET, &[a, b, c, d, e, f, g, h]) => {
                    resolution.with_offset(self.order.i64([a, b, c, d, e, f, g, h]))
                }
                _ => resolution,
            };
            options = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(resolution)
    }

    fn packet(
        &self,
        block: &mut Block<'_>,
        kind: u32,
        number: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Info, Trouble> {
        let header = block.array::<20>()?;
        let [id, high, low, len, original_len] = self.order.words(&header);
        // The obsolete form has a count of dropped frames in the other half of this word.
        let id = if kind == OBSOLETE_PACKET { self.order.u16([header[0], header[1]]).into() } else { id };
        let interface = self.interface_of(id, number)?;
        frame(block, number, len, bytes)?;
        let time = interface.resolution.time(u64::from(high) << 32 | u64::from(low));
        Ok(Info { time: Some(time), link: interface.link, original_len })
    }

    /// A frame without time, from the first interface; its length follows from the others.
    fn simple_packet(
        &self,
        block: &mut Block<'_>,
        number: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Info, Trouble> {
        let original_len = self.order.u32(block.array()?);
        let Interface { link, snap_len, .. } = self.interface_of(0, number)?;
        let kept = if snap_len == 0 { original_len } else { original_len.min(snap_len) };
        frame(block, number, kept, bytes)?;
        Ok(Info { time: None, link, original_len })
    }

    fn interface_of(&self, id: u32, number: u64) -> Result<Interface, Trouble> {
        let known = usize::try_from(id).ok().and_then(|id| self.interfaces.get(id));
        known.copied().ok_or_else(|| {
            let have = self.interfaces.len();
            Trouble::Damaged(format!(
                "frame {number} is from interface {id}, but the section describes {have}"
            ))
        })
    }
}

/// Reads the bytes of a frame, if its length can be true.
fn frame(block: &mut Block<'_>, number: u64, len: u32, bytes: &mut Vec<u8>) -> Result<(), Trouble> {
    if len > MAX_FRAME_LEN {
        return Err(Trouble::Absurd(number, len));
    }
    if len > block.left() {
        let what = format!("frame {number} announces {len} bytes in a block with room for {}", block.left());
        return Err(Trouble::Damaged(what));
    }
    block.bytes(len, bytes)
}

/// A block that is being read.
struct Block<'a> {
    input: &'a mut Input,
    inside: Place,
    len: u32,
    /// Bytes read, type and length included.
    read: u32,
}

impl<'a> Block<'a> {
    /// The length behind the body.
    const TRAILER: u32 = 4;

    /// A block of `len` bytes of which `read` are read.
    fn begin(input: &'a mut Input, inside: Place, len: u32, read: u32) -> Result<Self, Trouble> {
        if len < read + Self::TRAILER || !len.is_multiple_of(4) {
            return Err(Trouble::Damaged(format!("{inside} announces {len} bytes")));
        }
        Ok(Self { input, inside, len, read })
    }

    /// Bytes of the body that are not read.
    fn left(&self) -> u32 {
        self.len - Self::TRAILER - self.read
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Trouble> {
        let mut bytes = [0; N];
        if (self.left() as usize) < N {
            return Err(Trouble::Damaged(format!("{} has only {} bytes", self.inside, self.len)));
        }
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads `len` bytes of the body, of which so many are [`left`](Self::left), into `bytes`.
    fn bytes(&mut self, len: u32, bytes: &mut Vec<u8>) -> Result<(), Trouble> {
        bytes.resize(len as usize, 0);
        self.fill(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Trouble> {
        let have = self.input.fill(bytes)? as u64;
        self.advance(have, bytes.len() as u64)
    }

    /// Reads past the rest of the body; the length behind it must be the one in front.
    fn end(mut self, order: Order) -> Result<(), Trouble> {
        let left = self.left().into();
        let have = self.input.skip(left)?;
        self.advance(have, left)?;
        let mut trailer = [0; 4];
        let have = self.input.fill(&mut trailer)? as u64;
        self.advance(have, trailer.len() as u64)?;
        match order.u32(trailer) {
            again if again == self.len => Ok(()),
            again => {
                let Self { inside, len, .. } = self;
                Err(Trouble::Damaged(format!("{inside} has {len} bytes in front and {again} behind")))
            }
        }
    }

    /// Counts `have` bytes, where `want` were to be read.
    fn advance(&mut self, have: u64, want: u64) -> Result<(), Trouble> {
        let read = u64::from(self.read) + have;
        if have < want {
            return Err(Trouble::Truncated { inside: self.inside, have: read, need: self.len.into() });
        }
        self.read = u32::try_from(read).unwrap_or(self.len);
        Ok(())
    }
}
