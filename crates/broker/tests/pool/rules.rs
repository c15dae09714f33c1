//! One rule, one test.

use ferroce_broker::pool::{AllocError, Freed, Pool, PoolError};
use ferroce_verbs::{AccessError, RemoteRegion};

use crate::{access, domain, pool};

fn small() -> Pool {
    pool(Pool::builder().slab_size(1024).first_size(64), 4 * 1024)
}

#[test]
fn a_full_pool_is_an_error_with_its_usage_in_it() {
    let pool = small();
    let held: Vec<_> = (0..4 * 16).map(|_| pool.alloc(1, 64).unwrap()).collect();
    let error = pool.alloc(2, 100).unwrap_err();
    let text = error.to_string();
    let AllocError::Exhausted { key: 2, size: 100, class: 128, usage } = error else { panic!("{error:?}") };
    assert_eq!((usage.free_slabs, usage.items(), usage.bytes()), (0, 64, 64 * 64));
    assert!(
        text.starts_with("no room for 100 bytes (class of 128) in partition 2: no slab is free\n"),
        "{text}"
    );
    assert!(text.contains("64 items of 4096 bytes"), "{text}");
    drop(held);
    pool.alloc(2, 100).unwrap();
}

#[test]
fn a_slab_that_is_empty_serves_any_partition_and_any_class() {
    let pool = small();
    for round in 0..10 {
        let whole: Vec<_> = (0..4).map(|_| pool.alloc(round, 1024).unwrap()).collect();
        assert!(pool.alloc(round, 1).is_err());
        drop(whole);
        let parts: Vec<_> = (0..8).map(|_| pool.alloc(round + 100, 512).unwrap()).collect();
        assert_eq!(pool.usage().free_slabs, 0);
        drop(parts);
        assert_eq!(pool.usage().free_slabs, 4);
    }
}

#[test]
fn fragmentation_returns_to_zero() {
    let pool = pool(Pool::builder().slab_size(4096).first_size(32).factor(1.25), 256 * 4096);
    let mut items: Vec<_> = (0..400).map(|i| pool.alloc(i % 5, (i * 37 % 600) as usize).unwrap()).collect();
    assert!(pool.usage().fragmented_bytes() > 0);
    // Every other one first, so that slabs are full of holes.
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    assert!(pool.usage().fragmented_bytes() > 0);
    drop(items);
    let usage = pool.usage();
    assert_eq!((usage.fragmented_bytes(), usage.items(), usage.free_slabs), (0, 0, 256));
}

#[test]
fn partitions_never_share_a_slab() {
    let pool = small();
    let (a, b) = (pool.alloc(1, 64).unwrap(), pool.alloc(2, 64).unwrap());
    assert_ne!(a.offset() / 1024, b.offset() / 1024);
    assert_eq!((a.key(), b.key()), (1, 2));
}

#[test]
fn an_item_reaches_its_own_bytes_only() {
    let pool = small();
    let item = pool.alloc(1, 100).unwrap();
    let outside = |offset, len| Err(AccessError::OutOfBounds { offset, len, size: 100 });
    assert_eq!(item.write_at(90, &[1; 11]), outside(90, 11));
    assert_eq!(item.read_at(101, &mut []), outside(101, 0));
    assert_eq!(item.fill(..=100, 1), outside(0, 101));
    assert_eq!(item.to_vec(1..usize::MAX), outside(1, usize::MAX - 1).map(|()| Vec::new()));
    assert_eq!(item.load_u64(96), outside(96, 8).map(|()| 0));
    assert_eq!(item.store_u64(usize::MAX, 1), outside(usize::MAX, 8));
    item.fill(.., 7).unwrap();
    item.write_at(90, b"0123456789").unwrap();
    assert_eq!(item.to_vec(88..).unwrap(), b"\x07\x070123456789");
    item.store_u64(8, 40).unwrap();
    assert_eq!(item.fetch_add_u64(8, 2).unwrap(), 40);
    assert_eq!(item.load_u64(8).unwrap(), 42);
    assert!(item.load_u64(4).is_err());
}

#[test]
fn its_description_for_peers_has_its_bytes_and_no_more() {
    let pool = small();
    let item = pool.alloc(1, 100).unwrap();
    let remote = RemoteRegion::from_bytes(&item.remote().to_bytes()).unwrap();
    let region = pool.region();
    assert_eq!(remote.address, region.address() + item.offset() as u64);
    assert_eq!((remote.length, remote.rkey), (100, region.rkey()));
    assert_eq!((item.lkey(), item.address()), (region.lkey(), remote.address));
}

#[test]
fn items_outlive_the_pool() {
    let pool = small();
    let item = pool.alloc(1, 8).unwrap();
    drop(pool);
    item.write_at(0, b"still me").unwrap();
    assert_eq!(item.to_vec(..).unwrap(), b"still me");
}

#[test]
fn zeroed_items_do_not_show_what_was_there() {
    let pool = small();
    let item = pool.alloc(1, 1024).unwrap();
    item.fill(.., 0xaa).unwrap();
    let offset = item.offset();
    drop(item);
    let item = pool.alloc_zeroed(9, 1000).unwrap();
    assert_eq!((item.offset(), item.to_vec(..).unwrap()), (offset, vec![0; 1000]));
}

#[test]
fn an_empty_item_is_an_item() {
    let pool = small();
    let (a, b) = (pool.alloc(1, 0).unwrap(), pool.alloc(1, 0).unwrap());
    assert!(a.is_empty() && b.is_empty() && a.offset() != b.offset());
    assert_eq!(a.remote().length, 0);
}

#[test]
fn too_large_is_refused_with_the_largest() {
    let error = small().alloc(1, 1025).unwrap_err();
    assert_eq!(error, AllocError::TooLarge { size: 1025, largest: 1024 });
}

#[test]
fn a_kept_item_is_taken_back_once() {
    let pool = small();
    let item = pool.alloc(1, 10).unwrap();
    item.write_at(0, b"0123456789").unwrap();
    let (offset, kept) = (item.offset(), item.keep());
    assert_eq!(pool.usage().partitions[0].classes[0].kept, 1);
    let item = pool.take(kept).unwrap();
    assert_eq!((item.offset(), item.len(), item.to_vec(..).unwrap()), (offset, 10, b"0123456789".to_vec()));
    assert!(pool.take(kept).is_none(), "it has an owner");
    let again = item.keep();
    assert!(pool.take(kept).is_none(), "it is kept under another name now");
    drop(pool.take(again));
    assert!(pool.take(again).is_none(), "it is free");
    let other = pool.alloc(1, 10).unwrap().keep();
    assert!(pool.take(again).is_none() && pool.take(kept).is_none(), "another one lies there");
    assert!(pool.take(other).is_some());
    assert_eq!(pool.usage().free_slabs, 4);
}

#[test]
fn a_name_means_nothing_in_a_partition_that_was_made_anew() {
    let pool = small();
    let old = pool.alloc(1, 100).unwrap().keep();
    pool.free_kept(1);
    let new = pool.alloc(1, 100).unwrap().keep();
    assert!(pool.take(old).is_none());
    assert!(pool.take(new).is_some());
}

#[test]
fn names_of_another_pool_are_nothing_here() {
    let large = pool(Pool::builder().slab_size(1 << 16).first_size(8).factor(1.3), 1 << 24);
    let kept: Vec<_> = (0..200).map(|i| large.alloc(1, i * 300).unwrap().keep()).collect();
    let pool = small();
    let mine = pool.alloc(1, 1024).unwrap();
    assert!(kept.iter().all(|&kept| pool.take(kept).is_none()));
    drop(mine);
}

#[test]
fn freeing_a_partition_spares_what_has_an_owner() {
    let pool = small();
    let own = pool.alloc(1, 64).unwrap();
    own.write_at(0, b"mine").unwrap();
    let kept: Vec<_> = (0..20).map(|_| pool.alloc(1, 60).unwrap().keep()).collect();
    let wide = pool.alloc(1, 500).unwrap().keep();
    let other = pool.alloc(2, 64).unwrap().keep();
    assert_eq!(pool.free_kept(1), Freed { items: 21, bytes: 20 * 60 + 500, lent: 0 });
    assert_eq!(pool.free_kept(1), Freed::default());
    assert!(kept.iter().chain([&wide]).all(|&kept| pool.take(kept).is_none()));
    assert!(pool.take(other).is_some());
    assert_eq!(own.to_vec(..4).unwrap(), b"mine");
    assert_eq!(pool.usage().free_slabs, 3);
    drop(own);
    assert_eq!(pool.usage().free_slabs, 4);
    assert_eq!(pool.free_kept(77), Freed::default());
}

#[test]
fn partitions_have_a_limit_and_empty_ones_make_room() {
    let pool = pool(Pool::builder().slab_size(1024).max_partitions(3), 16 * 1024);
    let held: Vec<_> = (0..3).map(|key| pool.alloc(key, 8).unwrap()).collect();
    let error = pool.alloc(3, 8).unwrap_err();
    assert_eq!(error, AllocError::TooManyPartitions { key: 3, limit: 3 });
    let mut held = held.into_iter();
    drop(held.next());
    let kept = pool.alloc(3, 8).unwrap().keep();
    assert!(pool.alloc(0, 8).is_err(), "a kept item holds its partition");
    pool.free_kept(3);
    assert!(pool.take(kept).is_none());
    pool.alloc(0, 8).unwrap();
}

#[test]
fn a_handle_gives_what_the_key_gives_and_holds_its_partition() {
    let pool = pool(Pool::builder().slab_size(1024).max_partitions(1), 2 * 1024);
    let partition = pool.partition(7).unwrap();
    assert_eq!(pool.alloc(8, 1).unwrap_err(), AllocError::TooManyPartitions { key: 8, limit: 1 });
    let (one, two) = (partition.alloc(64).unwrap(), pool.alloc(7, 64).unwrap());
    assert_eq!((one.key(), two.key(), one.offset() / 1024), (7, 7, two.offset() / 1024));
    assert_eq!(partition.alloc(1025).unwrap_err(), AllocError::TooLarge { size: 1025, largest: 1024 });
    let whole = partition.alloc(1024).unwrap();
    assert!(matches!(partition.alloc(1024), Err(AllocError::Exhausted { key: 7, .. })));
    drop((one, two, whole, partition));
    pool.alloc(8, 1).unwrap();
}

#[test]
fn a_region_smaller_than_a_slab_is_refused_with_both_sizes() {
    let error = Pool::builder().slab_size(4096).allocate(&domain(), 4095, access()).unwrap_err();
    assert_eq!(error, PoolError::RegionTooSmall { region: 4095, slab: 4096 });
    assert!(error.to_string().contains("4095") && error.to_string().contains("4096"));
}

#[test]
fn bytes_behind_the_last_slab_are_not_used() {
    let region = domain().allocate(2 * 1024 + 1000, access()).unwrap();
    let pool = Pool::builder().slab_size(1024).over(region).unwrap();
    let held: Vec<_> = std::iter::from_fn(|| pool.alloc(1, 1000).ok()).collect();
    assert_eq!(held.len(), 2);
    assert_eq!((pool.usage().slabs, pool.usage().region_bytes), (2, 3048));
}

#[test]
fn a_region_at_an_odd_address_is_refused() {
    let memory = ferroce_verbs::Memory::zeroed(8192).unwrap();
    let region = domain().register_at(memory, .., 0x1004, access()).unwrap();
    let error = Pool::builder().slab_size(1024).over(region).unwrap_err();
    assert_eq!(error, PoolError::Unaligned { address: 0x1004, alignment: 8 });
}
