//! A card that fails where a test wants it to, written in C: what a real one does when something is wrong.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ferroce_memory::{Allocation, WindowKind};
use ferroce_system::{
    Bytes, CardCompletion, CardEvent, CompletionQueueOptions, Context, ForkCare, Library, MakeError,
    OpenCardError, Operation, PostWorkError, QueuePair, QueuePairOptions, RegisterError, RegisterOptions,
    SendWork,
};
use ferroce_testkit::stub;
use ferroce_transport::{Access, Attributes, Remote, SendFlags, State, Status, WorkKind};
use ferroce_wire::{PathMtu, Rkey, Service};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::child::{is_child, run_on};
use crate::connected::is_held;
use crate::forks::forked;

/// Declares tests with a card that fails as these variables say.
macro_rules! over_faults {
    ($(fn $name:ident($library:ident: $type:ty) with [$($variable:ident = $value:expr),*] $body:block)*) => {$(
        #[test]
        fn $name() {
            let Some(card) = card() else { return };
            let variables = [$((concat!("CARD_", stringify!($variable)), $value)),*];
            run_on(card, concat!(module_path!(), "::", stringify!($name)), &variables, |$library: $type| $body);
        }
    )*};
}

/// The library with the card, compiled once; or nothing where C cannot be.
fn card() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    if is_child() {
        return Some(Path::new(""));
    }
    LIBRARY.get_or_init(|| stub::card(Path::new(env!("CARGO_TARGET_TMPDIR")))).as_deref()
}

fn opened(library: Library) -> Context {
    library.cards().unwrap()[0].open().unwrap()
}

/// A queue pair, and registered memory that nothing else holds.
fn ready(context: &Context) -> (QueuePair, Arc<Allocation>, ferroce_system::MemoryRegion) {
    let domain = context.protection_domain().unwrap();
    let queue = context.completion_queue(64).unwrap();
    let qp = domain.queue_pair(&QueuePairOptions::new(Service::Rc, &queue)).unwrap();
    let memory = Allocation::zeroed(64).unwrap();
    let region = domain.register(&memory, Access::LOCAL_WRITE).unwrap();
    (qp, memory, region)
}

const THERE: Operation<'static> = Operation::Write(Remote { address: 0, rkey: Rkey(1) });

over_faults! {
    fn a_machine_without_rdma_has_no_cards(library: Library) with [LIST = "38"] {
        assert!(library.cards().unwrap().is_empty());
    }

    fn a_list_that_cannot_be_had_is_an_error(library: Library) with [LIST = "12"] {
        let error = library.cards().unwrap_err();
        assert_eq!((error.call, error.code), ("ibv_get_device_list", libc::ENOMEM));
    }

    fn a_card_of_another_user_names_its_file(library: Library) with [OPEN = "13"] {
        let error = library.cards().unwrap()[0].open().unwrap_err();
        assert!(matches!(error, OpenCardError::NoPermission { .. }));
        let told = error.to_string();
        assert_eq!(told, "card0 may not be opened by this user: ask for the right to read and write /dev/infiniband/uverbs7");
    }

    fn a_card_that_went_after_it_was_listed_is_gone(library: Library) with [OPEN = "19"] {
        assert!(matches!(library.cards().unwrap()[0].open(), Err(OpenCardError::Gone { .. })));
    }

    fn a_card_that_breaks_tells_it_once(library: Library) with [GONE = "1"] {
        let events = opened(library).events();
        assert_eq!(events.poll(), Ok(Some(CardEvent::CardFailed)));
        assert_eq!(events.poll(), Ok(None));
    }

    fn memory_that_cannot_be_locked_names_the_limit(library: Library) with [REGISTER = "12"] {
        let few = Some(65_536);
        setrlimit(Resource::Memlock, Rlimit { current: few, maximum: few }).unwrap();
        let domain = opened(library).protection_domain().unwrap();
        let memory = Allocation::zeroed(1 << 20).unwrap();
        let error = domain.register(&memory, Access::empty()).unwrap_err();
        let RegisterError::Locked { len, limit, error: call } = error else { panic!("{error}") };
        assert_eq!((len, limit, call.call, call.code), (1 << 20, 65_536, "ibv_reg_mr", libc::ENOMEM));
        let told = error.to_string();
        assert!(told.contains("1048576 bytes were not locked") && told.contains("RLIMIT_MEMLOCK"), "{told}");
        assert!(!is_held(&memory));
    }

    fn other_errors_of_registration_are_as_they_are(library: Library) with [REGISTER = "22"] {
        let domain = opened(library).protection_domain().unwrap();
        let error = domain.register(&Allocation::zeroed(8).unwrap(), Access::empty()).unwrap_err();
        assert_eq!(error.to_string(), "ibv_reg_mr failed: Invalid argument (os error 22)");
    }

    fn an_old_library_has_no_chosen_addresses_and_no_optional_access(library: Library) with [] {
        let domain = opened(library).protection_domain().unwrap();
        let memory = Allocation::zeroed(64).unwrap();
        let optional = RegisterOptions { address: None, relaxed_ordering: true };
        domain.register_part(&memory, 0..64, Access::empty(), optional).unwrap();
        let chosen = RegisterOptions { address: Some(0), relaxed_ordering: false };
        let error = domain.register_part(&memory, 0..64, Access::empty(), chosen).unwrap_err();
        assert!(matches!(error, RegisterError::NoChosenAddress { .. }), "{error}");
        assert_eq!(opened(library).gids(), Ok(None));
    }

    fn a_binding_names_the_key_that_its_window_has_until_then(library: Library) with [WINDOWS = "1"] {
        let context = opened(library);
        let domain = context.protection_domain().unwrap();
        let queue = context.completion_queue(1024).unwrap();
        let qp = domain.queue_pair(&QueuePairOptions::new(Service::Rc, &queue)).unwrap();
        let memory = Allocation::zeroed(64).unwrap();
        let region = domain.register(&memory, Access::LOCAL_WRITE | Access::BIND_WINDOW).unwrap();
        let window = domain.memory_window(WindowKind::Type2).unwrap();
        // All of them are described before the first is posted: no two that follow each other have the same key.
        for _ in 0..100 {
            let bindings: Vec<_> = (0..5).map(|_| window.bind(&region, 0..8, Access::REMOTE_READ)).collect();
            let last = bindings[4].rkey();
            let work: Vec<SendWork<'_>> = bindings
                .into_iter()
                .flat_map(|binding| [Operation::Bind(binding), Operation::LocalInvalidate(binding.rkey())])
                .map(|operation| SendWork::new(1, operation, Bytes::Inline(&[])))
                .collect();
            qp.post_send(&work).unwrap();
            assert_eq!(window.rkey(), last);
            while queue.poll(&mut [ferroce_transport::Completion::EMPTY; 16]).unwrap() > 0 {}
        }
    }

    fn neighbours_in_a_page_are_kept_out_of_it_where_forks_are_cared_for(library: Library) with [FORK = "1"] {
        assert_eq!(library.fork_care(), Some(ForkCare::On));
        let domain = opened(library).protection_domain().unwrap();
        let boxed = Allocation::from_boxed(Box::new([0; 100]));
        assert_eq!(domain.register(&boxed, Access::empty()).unwrap_err(), RegisterError::SharesPages);
        domain.register(&Allocation::zeroed(100).unwrap(), Access::empty()).unwrap();
    }

    fn a_queue_pair_that_cannot_be_destroyed_keeps_its_memory(library: Library) with [DESTROY = "5"] {
        let context = opened(library);
        let (qp, memory, region) = ready(&context);
        let bytes = [region.all()];
        let work = SendWork::new(1, THERE, Bytes::Pieces(&bytes));
        qp.post_send(&[SendWork { flags: SendFlags::empty(), ..work }]).unwrap();
        drop((region, qp));
        assert!(is_held(&memory), "the card may still read it");
    }

    fn memory_that_cannot_be_deregistered_is_kept(library: Library) with [DEREGISTER = "16"] {
        let domain = opened(library).protection_domain().unwrap();
        let memory = Allocation::zeroed(64).unwrap();
        let region = domain.register(&memory, Access::empty()).unwrap();
        let (region, error) = region.deregister().unwrap_err();
        assert_eq!((error.call, error.code), ("ibv_dereg_mr", libc::EBUSY));
        drop(region);
        assert!(is_held(&memory), "the card may still read it");
    }

    fn a_refused_request_is_taken_back_and_those_before_it_are_not(library: Library) with [TAKES = "3"] {
        let context = opened(library);
        let (qp, memory, region) = ready(&context);
        let bytes = [region.all()];
        let work = SendWork::new(1, THERE, Bytes::Pieces(&bytes));
        let error = qp.post_send(&[work; 5]).unwrap_err();
        assert!(matches!(error.error, PostWorkError::Refused(refused) if refused.code == libc::ENOMEM));
        assert_eq!((error.taken, error.given, qp.sends_under_way()), (2, 5, 2));
        drop(region);
        assert!(is_held(&memory));
        drop(qp);
        assert!(!is_held(&memory));
    }

    fn a_card_that_does_not_say_what_it_took_is_believed_to_have_all(library: Library) with [TAKES = "3", LIES = "1"] {
        let context = opened(library);
        let (qp, memory, region) = ready(&context);
        let bytes = [region.all()];
        let work = SendWork::new(1, THERE, Bytes::Pieces(&bytes));
        let error = qp.post_send(&[work; 5]).unwrap_err();
        assert_eq!((error.taken, qp.sends_under_way()), (0, 5));
        drop(region);
        assert!(is_held(&memory));
    }

    fn an_unknown_status_is_the_nearest_known_one(library: Library) with [STATUS = "21"] {
        let context = opened(library);
        let domain = context.protection_domain().unwrap();
        let queue = context.completion_queue(64).unwrap();
        let qp = domain.queue_pair(&QueuePairOptions::new(Service::Rc, &queue)).unwrap();
        qp.post_send(&[SendWork::new(8, THERE, Bytes::Inline(b""))]).unwrap();
        let mut done = [CardCompletion::EMPTY; 2];
        assert_eq!(queue.poll(&mut done), Ok(1));
        assert_eq!((done[0].id, done[0].kind, done[0].status_code), (8, WorkKind::Write, 21));
        assert_eq!(done[0].status(), Status::LocalQpOperation);
    }

    fn a_broken_completion_queue_is_an_error(library: Library) with [POLL = "5"] {
        let context = opened(library);
        let error = context.completion_queue(4).unwrap().poll(&mut [CardCompletion::EMPTY; 4]).unwrap_err();
        assert_eq!((error.call, error.code), ("ibv_poll_cq", libc::EIO));
    }

    fn what_is_told_of_a_queue_pair_that_is_gone_is_of_no_other(library: Library) with [] {
        let context = opened(library);
        let domain = context.protection_domain().unwrap();
        let queue = context.completion_queue(64).unwrap();
        let options = QueuePairOptions::new(Service::Rc, &queue);
        for round in 0..3 {
            let qp = domain.queue_pair(&options).unwrap();
            qp.post_send(&[SendWork::new(round, THERE, Bytes::Inline(b""))]).unwrap();
            // Dropped without a poll: this card forgets nothing.
        }
        let qp = domain.queue_pair(&options).unwrap();
        qp.post_send(&[SendWork::new(9, THERE, Bytes::Inline(b""))]).unwrap();
        let mut done = [CardCompletion::EMPTY; 8];
        assert_eq!(queue.poll(&mut done), Ok(1));
        assert_eq!(done[0].id, 9);
        // The same after a reset.
        qp.post_send(&[SendWork::new(10, THERE, Bytes::Inline(b""))]).unwrap();
        qp.modify(&Attributes::to(State::Reset), None).unwrap();
        qp.post_send(&[SendWork::new(11, THERE, Bytes::Inline(b""))]).unwrap();
        assert_eq!(queue.poll(&mut done), Ok(1));
        assert_eq!(done[0].id, 11);
    }

    fn an_old_driver_has_no_extended_functions(library: Library) with [OLD = "1"] {
        let context = opened(library);
        assert!(context.port(1).unwrap().active);
        let timed = CompletionQueueOptions::new(4).timestamps();
        let error = context.completion_queue_with(&timed).unwrap_err();
        assert!(matches!(error, MakeError::Refused(call) if call.code == libc::EOPNOTSUPP), "{error}");
        let attributes = context.query().unwrap();
        assert_eq!((attributes.moderation, attributes.core_clock_khz, context.tells_times()), (None, 0, false));
        let moderated = context.completion_queue(4).unwrap().moderate(2, 1);
        assert_eq!(moderated.unwrap_err().code, libc::EOPNOTSUPP);
        assert_eq!(context.clock().unwrap_err().code, libc::EOPNOTSUPP);
    }

    fn a_short_table_is_not_read_beyond_its_end(library: Library) with [TABLE = "16"] {
        let context = opened(library);
        assert!(context.port(1).unwrap().active && context.query().is_ok());
        assert!(context.completion_queue_with(&CompletionQueueOptions::new(4).timestamps()).is_err());
    }

    fn a_longer_table_of_a_newer_library_is_used_as_far_as_it_is_known(library: Library) with [NEWER = "1"] {
        let context = opened(library);
        // The short answer of an old library has no MTU.
        assert_eq!(context.port(1).unwrap().active_mtu, Some(PathMtu::B1024));
        assert!(context.query().is_ok());
        ready(&context);
    }

    fn a_driver_without_a_function_says_so(library: Library) with [NO_OPS = "1"] {
        let context = opened(library);
        let (qp, ..) = ready(&context);
        let error = qp.post_send(&[SendWork::new(1, THERE, Bytes::Inline(b""))]).unwrap_err().error;
        assert!(matches!(error, PostWorkError::Refused(call) if call.code == libc::EOPNOTSUPP), "{error}");
        assert_eq!(qp.sends_under_way(), 0);
        let domain = context.protection_domain().unwrap();
        assert_eq!(domain.memory_window(WindowKind::Type1).unwrap_err().code, libc::EOPNOTSUPP);
    }

    fn answers_of_every_form_become_error_numbers(library: Library) with [] {
        let context = opened(library);
        assert_eq!(context.pkey(1, 0).unwrap_err().code, libc::EIO);
        assert_eq!(context.gid(1, 0).unwrap_err().call, "ibv_query_gid");
        let queue = context.protection_domain().unwrap().shared_receive_queue(4, 1).unwrap();
        assert_eq!(queue.set_limit(1).unwrap_err().code, libc::ENOSYS);
    }

    fn the_kernels_soft_device_tries_no_more_than_six_times(library: Library) with [VENDOR = "16777215"] {
        assert_eq!(retries(library), 6);
    }

    fn so_does_one_that_has_its_name(library: Library) with [NAME = "rxe3"] {
        assert_eq!(retries(library), 6);
    }

    fn a_card_tries_seven_times(library: Library) with [VENDOR = "5555"] {
        assert_eq!(retries(library), 7);
    }
}

/// The tries that a queue pair has which was to try seven times.
fn retries(library: Library) -> u8 {
    let (qp, ..) = ready(&opened(library));
    qp.modify(&Attributes::new().with_retry_count(7), None).unwrap();
    qp.query().unwrap().attributes.retry_count
}

#[test]
fn every_object_is_given_back() {
    let Some(library) = card() else { return };
    let name = concat!(module_path!(), "::every_object_is_given_back");
    let said = run_on(library, name, &[("CARD_COUNT", "1")], |library| {
        let context = opened(library);
        let (qp, _, region) = ready(&context);
        let domain = context.protection_domain().unwrap();
        let queue = domain.shared_receive_queue(4, 1).unwrap();
        let channel = context.completion_channel().unwrap();
        let cq = context.completion_queue_with(&CompletionQueueOptions::new(4).channel(&channel)).unwrap();
        let bytes = [region.all()];
        qp.post_send(&[SendWork::new(1, THERE, Bytes::Pieces(&bytes)); 3]).unwrap();
        let options =
            QueuePairOptions { shared_queue: Some(&queue), ..QueuePairOptions::new(Service::Ud, &cq) };
        let other = domain.queue_pair(&options).unwrap();
        drop((context, domain, channel, cq, queue));
        drop((region, other, qp));
    });
    assert!(said.is_none_or(|said| said.contains("0 objects left\n")));
}

#[test]
fn a_forked_child_destroys_nothing() {
    let Some(library) = card() else { return };
    let name = concat!(module_path!(), "::a_forked_child_destroys_nothing");
    let said = run_on(library, name, &[("CARD_COUNT", "1")], |library| {
        let context = opened(library);
        let objects = ready(&context);
        forked(|| true);
        drop((context, objects));
    });
    // A domain, a completion queue, a queue pair and a region; then those of the parent.
    assert!(said.is_none_or(|said| said.contains("4 objects left\n") && said.contains("0 objects left\n")));
}
