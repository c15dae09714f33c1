//! What the partitions of a pool have, in numbers and as a table.

use std::fmt;

/// What is in use of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the region.
    pub region_bytes: usize,
    /// Bytes of a slab.
    pub slab_bytes: usize,
    /// Slabs of the region.
    pub slabs: usize,
    /// Slabs that no partition has.
    pub free_slabs: usize,
    /// By key.
    pub partitions: Vec<PartitionUsage>,
}

/// What is in use of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionUsage {
    /// Its key.
    pub key: u64,
    /// By size, only classes that have slabs.
    pub classes: Vec<ClassUsage>,
}

/// What is in use of a class in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassUsage {
    /// Bytes of an item.
    pub size: usize,
    /// Slabs that it has.
    pub slabs: usize,
    /// Items in use.
    pub items: usize,
    /// Items that its slabs have room for, those in use among them.
    pub room: usize,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Items without an owner in the program, among those in use.
    pub kept: usize,
    /// How often posted work names items.
    pub loans: usize,
}

/// What became of the kept items of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Items that are free now.
    pub items: usize,
    /// Bytes that had been asked for.
    pub bytes: u64,
    /// Items that go when posted work is done with them.
    pub lent: usize,
}

impl Usage {
    /// Items in use.
    #[must_use]
    pub fn items(&self) -> usize {
        self.classes().map(|class| class.items).sum()
    }

    /// Bytes that were asked for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.classes().map(|class| class.bytes).sum()
    }

    /// Bytes of the partitions' slabs that the program did not ask for: what the division into slabs and
    /// classes costs now.
    #[must_use]
    pub fn fragmented_bytes(&self) -> u64 {
        let slabs: u64 = self.classes().map(|class| class.slabs as u64).sum();
        (slabs * self.slab_bytes as u64).saturating_sub(self.bytes())
    }

    fn classes(&self) -> impl Iterator<Item = &ClassUsage> {
        self.partitions.iter().flat_map(|partition| &partition.classes)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region_bytes, slab_bytes, slabs, free_slabs, partitions } = self;
        write!(
            f,
            "pool of {region_bytes} bytes: {slabs} slabs of {slab_bytes}, {free_slabs} of them free; \
             {} items of {} bytes, {} bytes fragmented",
            self.items(),
            self.bytes(),
            self.fragmented_bytes()
        )?;
        if self.classes().next().is_none() {
            return Ok(());
        }
        write!(
            f,
            "\n{:>20} {:>10} {:>7} {:>9} {:>9} {:>12} {:>9} {:>7}",
            "partition", "class", "slabs", "items", "room", "bytes", "kept", "loans"
        )?;
        for PartitionUsage { key, classes } in partitions {
            for ClassUsage { size, slabs, items, room, bytes, kept, loans } in classes {
                write!(
                    f,
                    "\n{key:>20} {size:>10} {slabs:>7} {items:>9} {room:>9} {bytes:>12} {kept:>9} {loans:>7}"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_class_in_use() {
        let class = ClassUsage { size: 64, slabs: 2, items: 20, room: 32, bytes: 1200, kept: 3, loans: 1 };
        let usage = Usage {
            region_bytes: 4100,
            slab_bytes: 1024,
            slabs: 4,
            free_slabs: 2,
            partitions: vec![PartitionUsage { key: 7, classes: vec![class] }],
        };
        let text = usage.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "pool of 4100 bytes: 4 slabs of 1024, 2 of them free; 20 items of 1200 bytes, 848 bytes fragmented"
        );
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            words(lines[1]),
            ["partition", "class", "slabs", "items", "room", "bytes", "kept", "loans"]
        );
        assert_eq!(words(lines[2]), ["7", "64", "2", "20", "32", "1200", "3", "1"]);
        assert_eq!(lines.len(), 3);
    }
}
