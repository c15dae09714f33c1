//! Random programs against a model that is too simple to be wrong.

use std::collections::BTreeMap;

use ferroce_broker::pool::{AllocError, Item, KeptItem, Pool};
use proptest::prelude::*;

use crate::pool;

/// A step of a program. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Alloc { key: u64, size: usize },
    Free(usize),
    Keep(usize),
    Take(usize),
    FreeKept { key: u64 },
}

#[derive(Clone, Debug)]
struct Shape {
    slab: usize,
    slabs: usize,
    tail: usize,
    first: usize,
    factor: f64,
    alignment: usize,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let factors = prop_oneof![Just(1.25), Just(2.0), Just(3.7), 1.1..8.0];
    (1..16_usize, 1..12_usize, 0..100_usize, 1..100_usize, factors, 3..8_u32).prop_map(
        |(pages, slabs, tail, first, factor, bits)| {
            let slab = pages * 512;
            Shape { slab, slabs, tail, first, factor, alignment: 1 << bits }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4_u64, prop_oneof![0..200_usize, 0..9000_usize])
            .prop_map(|(key, size)| Step::Alloc { key, size }),
        4 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::Keep),
        1 => any::<usize>().prop_map(Step::Take),
        1 => (0..4_u64).prop_map(|key| Step::FreeKept { key }),
    ];
    prop::collection::vec(step, 1..250)
}

/// What should be in use, by offset: key, size, and how much room it really has.
#[derive(Default)]
struct Model {
    used: BTreeMap<usize, (u64, usize, usize)>,
    owned: Vec<Item>,
    kept: Vec<(usize, KeptItem)>,
    gone: Vec<KeptItem>,
}

/// Programs that are tried: many more in the long form.
fn cases() -> u32 {
    if std::env::var_os("FERROCE_SOAK").is_some() { 20_000 } else { 300 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_pool_is_what_the_model_says(shape in shapes(), steps in steps()) {
        let Shape { slab, slabs, tail, first, factor, alignment } = shape;
        let builder = Pool::builder().slab_size(slab).first_size(first).factor(factor).alignment(alignment);
        let pool = pool(builder, slab * slabs + tail);
        let mut model = Model::default();
        for step in steps {
            model.run(&pool, step, &shape);
            model.check(&pool, slab);
        }
        model.owned.clear();
        for key in 0..4 {
            pool.free_kept(key);
        }
        let usage = pool.usage();
        prop_assert_eq!((usage.free_slabs, usage.items(), usage.bytes()), (slabs, 0, 0));
        prop_assert_eq!(usage.fragmented_bytes(), 0);
    }
}

impl Model {
    fn run(&mut self, pool: &Pool, step: Step, shape: &Shape) {
        match step {
            Step::Alloc { key, size } => self.alloc(pool, key, size, shape),
            Step::Free(choice) if !self.owned.is_empty() => {
                let item = self.owned.swap_remove(choice % self.owned.len());
                self.used.remove(&item.offset()).unwrap();
            }
            Step::Keep(choice) if !self.owned.is_empty() => {
                let item = self.owned.swap_remove(choice % self.owned.len());
                self.kept.push((item.offset(), item.keep()));
            }
            Step::Take(choice) if !self.kept.is_empty() => {
                let (offset, kept) = self.kept.swap_remove(choice % self.kept.len());
                let item = pool.take(kept).unwrap();
                assert_eq!((item.offset(), item.len()), (offset, self.used[&offset].1));
                self.gone.push(kept);
                self.owned.push(item);
            }
            Step::FreeKept { key } => {
                let freed = pool.free_kept(key);
                let used = &mut self.used;
                let (mut items, mut bytes) = (0, 0);
                let gone: Vec<_> = self.kept.extract_if(.., |(offset, _)| used[offset].0 == key).collect();
                for (offset, kept) in gone {
                    items += 1;
                    bytes += used.remove(&offset).unwrap().1 as u64;
                    self.gone.push(kept);
                }
                assert_eq!((freed.items, freed.bytes, freed.lent), (items, bytes, 0));
            }
            Step::Free(_) | Step::Keep(_) | Step::Take(_) => {}
        }
    }

    fn alloc(&mut self, pool: &Pool, key: u64, size: usize, shape: &Shape) {
        let class = pool.class_sizes().iter().copied().find(|&room| room >= size);
        match pool.alloc(key, size) {
            Ok(item) => {
                let (offset, room) = (item.offset(), class.unwrap());
                assert_eq!((item.len(), item.key()), (size, key));
                assert!(offset + room <= shape.slab * shape.slabs, "outside of the slabs");
                assert!(offset + room <= pool.region().len(), "outside of the region");
                assert_eq!(item.address() % shape.alignment as u64, 0);
                assert_eq!(offset / shape.slab, (offset + room - 1) / shape.slab, "over the edge of a slab");
                let before = self.used.range(..=offset).next_back();
                assert!(before.is_none_or(|(at, (.., room))| at + room <= offset), "overlap");
                let after = self.used.range(offset..).next();
                assert!(after.is_none_or(|(&at, _)| offset + room <= at), "overlap");
                self.used.insert(offset, (key, size, room));
                self.owned.push(item);
            }
            Err(AllocError::TooLarge { largest, .. }) => {
                assert_eq!((class, largest), (None, shape.slab));
            }
            Err(AllocError::Exhausted { usage, .. }) => {
                assert!(class.is_some());
                assert_eq!(*usage, pool.usage());
                assert_eq!(usage.free_slabs, 0, "an error although a slab is free");
                let full = |slab: usize| {
                    let inside = self.used.range(slab * shape.slab..(slab + 1) * shape.slab);
                    let mut same = inside.filter(|(_, (of, _, room))| *of == key && Some(*room) == class);
                    let first = same.next();
                    first.is_none() || same.count() + 1 == shape.slab / class.unwrap()
                };
                assert!((0..shape.slabs).all(full), "an error although a slot is free");
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The usage is the sum of what there is, and every name that is over is nothing.
    fn check(&self, pool: &Pool, slab: usize) {
        let usage = pool.usage();
        assert_eq!(usage.items(), self.used.len());
        assert_eq!(usage.bytes(), self.used.values().map(|(_, size, _)| *size as u64).sum::<u64>());
        let mut slabs: Vec<usize> = self.used.keys().map(|offset| offset / slab).collect();
        slabs.dedup();
        assert_eq!(usage.slabs - usage.free_slabs, slabs.len());
        let classes = usage.partitions.iter().flat_map(|partition| &partition.classes);
        let (mut held, mut kept) = (0, 0);
        for class in classes {
            assert!(class.items <= class.room && class.items > 0 && class.loans == 0);
            assert_eq!(class.room, class.slabs * (slab / class.size));
            held += class.slabs;
            kept += class.kept;
        }
        assert_eq!((held, kept), (slabs.len(), self.kept.len()));
        if let Some(&gone) = self.gone.last() {
            assert!(pool.take(gone).is_none());
        }
    }
}
