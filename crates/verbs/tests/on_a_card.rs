//! What is special about cards: how they are chosen, what they refuse, and how programs wait for them. Our own drop-in library is
//! one; each test is a process of its own.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;
use std::time::Duration;

use ferroce_testkit::dropin::{on_a_card, on_a_card_with};
use ferroce_testkit::stub;
use ferroce_verbs::*;

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(20);
const NET: u8 = 185;
const AUTO: (&str, &str) = ("FERROCE_PROVIDER", "auto");

/// Two connected queue pairs that complete into one queue.
fn pair(context: &Context, cq: &CompletionQueue) -> (QueuePair, QueuePair) {
    let pd = context.protection_domain().unwrap();
    let [a, b] = [(); 2].map(|()| pd.queue_pair(Service::Rc).completion_queue(cq).build().unwrap());
    a.connect(&b.local_address()).unwrap();
    b.connect(&a.local_address()).unwrap();
    (a, b)
}

/// A soft device beside the one that is in the drop-in library.
fn soft(host: u8) -> Context {
    Context::builder("lo").address([127, 0, 186, host]).open().unwrap()
}

#[test]
fn the_name_decides_and_the_reason_is_told() {
    on_a_card_with(NET, "the_name_decides_and_the_reason_is_told", &[AUTO], || {
        let soft = soft(1);
        assert_eq!((soft.provider(), soft.reason()), (Provider::Soft, ProviderReason::SoftName));
        // A device of our drop-in is a card only for a program that wants no other.
        let cards = cards().unwrap();
        assert_eq!((cards.len(), cards[0].name().as_str()), (1, "ferroce_lo"));
        assert!(cards[0].is_ours());
        let card = Context::builder("ferroce_lo").provider(ProviderChoice::System).open().unwrap();
        assert_eq!((card.provider(), card.reason()), (Provider::System, ProviderReason::Wanted));
        assert_ne!(soft, card);
        let again = Context::builder("ferroce_lo").provider(ProviderChoice::System).open().unwrap();
        assert_eq!(card, again, "a process has a card once");
        let info = cards[0].info().unwrap();
        assert!(info.up && info.ethernet && info.addresses().count() > 0);
        assert_eq!(info.driver.as_deref(), Some("ferroce"));
    });
}

#[test]
fn a_word_that_is_no_provider_is_refused() {
    let variables = [("FERROCE_PROVIDER", "hard")];
    on_a_card_with(NET, "a_word_that_is_no_provider_is_refused", &variables, || {
        let error = Context::open("lo").unwrap_err();
        assert!(matches!(&error, OpenError::UnknownProvider { given } if given == "hard"), "{error}");
    });
}

#[test]
fn a_machine_without_the_library_runs_everything_soft() {
    let variables = [AUTO, ("FERROCE_LIBIBVERBS", "/nowhere/libibverbs.so.1")];
    on_a_card_with(NET, "a_machine_without_the_library_runs_everything_soft", &variables, || {
        let context = Context::open("lo").unwrap();
        assert_eq!(context.provider(), Provider::Soft);
        let error = Context::open("mlx5_0").unwrap_err();
        assert!(matches!(&error, OpenError::NotOffered { name, .. } if name == "mlx5_0"), "{error}");
        let error = cards().unwrap_err();
        assert!(matches!(error, OpenError::Library(LibraryError::NotThere { .. })), "{error}");
        let error = Context::builder("lo").provider(ProviderChoice::System).open().unwrap_err();
        assert!(matches!(error, OpenError::Library(_)), "{error}");
        assert!(open_cards_at([192, 0, 2, 1].into()).unwrap().is_empty());
    });
}

#[test]
fn a_library_that_cannot_be_used_is_named_and_everything_runs_soft() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(library) = stub::library("no-verbs.so", folder, "int nothing;\n") else { return };
    let library = library.to_str().unwrap();
    let variables = [AUTO, ("FERROCE_LIBIBVERBS", library)];
    let name = "a_library_that_cannot_be_used_is_named_and_everything_runs_soft";
    on_a_card_with(NET, name, &variables, || {
        let context = soft(4);
        let cq = context.completion_queue(16).unwrap();
        let (from, to) = pair(&context, &cq);
        to.receive(&[]).post().unwrap();
        from.send(&[]).post().unwrap();
        cq.wait(SOON).unwrap().result().unwrap();
        let error = cards().unwrap_err();
        let OpenError::Library(LibraryError::NoSymbol { library: of, symbol, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!((of.as_path(), *symbol), (std::path::Path::new(library), "ibv_get_device_list"));
        let error = Context::builder("lo").provider(ProviderChoice::System).open().unwrap_err();
        assert!(matches!(error, OpenError::Library(LibraryError::NoSymbol { .. })), "{error}");
        let error = Context::open("mlx5_0").unwrap_err();
        assert!(matches!(&error, OpenError::NotOffered { name, .. } if name == "mlx5_0"), "{error}");
        assert!(open_cards_at([192, 0, 2, 1].into()).unwrap().is_empty());
        assert_eq!(open_card_towards([192, 0, 2, 1].into()).unwrap().map(|_| ()), None);
    });
}

#[test]
fn a_card_that_this_user_may_not_open_is_named_with_its_file_and_the_soft_device_goes_on() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(library) = stub::card(folder) else { return };
    let variables = [AUTO, ("FERROCE_LIBIBVERBS", library.to_str().unwrap()), ("CARD_OPEN", "13")];
    let name = "a_card_that_this_user_may_not_open_is_named_with_its_file_and_the_soft_device_goes_on";
    on_a_card_with(NET, name, &variables, || {
        let context = soft(5);
        let cq = context.completion_queue(16).unwrap();
        let (from, to) = pair(&context, &cq);
        let works = || {
            to.receive(&[]).post().unwrap();
            from.send(&[]).post().unwrap();
            for _ in 0..2 {
                cq.wait(SOON).unwrap().result().unwrap();
            }
        };
        works();
        assert_eq!(cards().unwrap()[0].name(), "card0");
        let error = Context::open("card0").unwrap_err();
        let told = Chain::of(&error).to_string();
        assert!(told.contains("ask for the right to read and write /dev/infiniband/uverbs7"), "{told}");
        // What asks for any card takes the others.
        assert!(open_cards_at([0, 0, 0, 0].into()).unwrap().is_empty());
        works();
    });
}

#[test]
fn a_setting_that_cards_do_not_have_is_refused_by_name() {
    on_a_card(NET, "a_setting_that_cards_do_not_have_is_refused_by_name", || {
        let refused = |builder: ContextBuilder| match builder.open().unwrap_err() {
            OpenError::Unsupported(Unsupported { capability }) => capability,
            other => panic!("{other}"),
        };
        let of = || Context::builder("ferroce_lo");
        assert_eq!(refused(of().address([127, 0, 0, 1])), Capability::ChosenAddresses);
        assert_eq!(refused(of().engines(2)), Capability::Engines);
        assert_eq!(refused(of().path(PathPolicy::Forbid)), Capability::Paths);
        assert_eq!(refused(of().capture("/tmp/x.pcap")), Capability::Capture);
        let context = of().open().unwrap();
        assert!(!context.can(Capability::Recording));
        assert!(matches!(
            context.record().unwrap_err(),
            RecordingError::Device(CreateError::Unsupported(Unsupported {
                capability: Capability::Recording
            }))
        ));
        let cq = context.completion_queue(8).unwrap();
        let pd = context.protection_domain().unwrap();
        let built = pd.queue_pair(Service::Rc).completion_queue(&cq).engine(0).build();
        let engines = CreateError::Unsupported(Capability::Engines.into());
        assert_eq!(built.unwrap_err(), BuildError::Create(engines));
    });
}

#[test]
fn objects_of_two_kinds_do_not_work_together() {
    on_a_card_with(NET, "objects_of_two_kinds_do_not_work_together", &[AUTO], || {
        let soft = soft(2);
        let card = Context::builder("ferroce_lo").provider(ProviderChoice::System).open().unwrap();
        let (soft_cq, card_cq) = (soft.completion_queue(8).unwrap(), card.completion_queue(8).unwrap());
        for (context, cq) in [(&soft, &card_cq), (&card, &soft_cq)] {
            let pd = context.protection_domain().unwrap();
            let built = pd.queue_pair(Service::Rc).completion_queue(cq).build().unwrap_err();
            let what = "completion queue";
            assert_eq!(built, BuildError::Create(CreateError::OtherDevice { what }));
        }
        let (a, _b) = pair(&card, &card_cq);
        let region = soft.protection_domain().unwrap().allocate(64, Access::LOCAL_WRITE).unwrap();
        let error = a.send(&region).post().unwrap_err();
        assert!(matches!(error, PostError::OtherDomain { .. }), "{error}");
    });
}

#[test]
fn a_thread_sleeps_for_a_card_and_for_our_own_device_at_once() {
    let name = "a_thread_sleeps_for_a_card_and_for_our_own_device_at_once";
    on_a_card_with(NET, name, &[AUTO], || {
        let soft = soft(3);
        let card = Context::builder("ferroce_lo").provider(ProviderChoice::System).open().unwrap();
        let queues = [soft.completion_queue(16).unwrap(), card.completion_queue(16).unwrap()];
        let pairs = [pair(&soft, &queues[0]), pair(&card, &queues[1])];
        for (place, (from, to)) in pairs.iter().enumerate() {
            to.receive(&[]).id(7).post().unwrap();
            thread::scope(|scope| {
                let sleeps = scope.spawn(|| {
                    loop {
                        let found = queues.iter().position(|queue| queue.poll_one().is_some());
                        match found {
                            Some(found) => return found,
                            None => CompletionQueue::sleep_for_any(&queues, SOON, |_| true),
                        }
                    }
                });
                from.send(&[]).post().unwrap();
                assert_eq!(sleeps.join().unwrap(), place);
            });
            // What is left of the two completions.
            queues[place].wait(SOON).unwrap().result().unwrap();
        }
    });
}

#[test]
fn a_task_that_awaits_a_card_is_woken() {
    on_a_card(NET, "a_task_that_awaits_a_card_is_woken", || {
        let card = Context::open("ferroce_lo").unwrap();
        let cq = card.completion_queue(16).unwrap();
        let (from, to) = pair(&card, &cq);
        for round in 0..100 {
            to.receive(&[]).id(round).post().unwrap();
            let mut next = pin!(cq.next());
            let waker = time::this_thread();
            assert!(next.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
            from.send(&[]).id(round).post().unwrap();
            let done = loop {
                match next.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
                    Poll::Ready(done) => break done.unwrap(),
                    Poll::Pending => time::park(Some(SOON)),
                }
            };
            let other = cq.wait(SOON).unwrap();
            assert_eq!((done.result().unwrap().id, other.result().unwrap().id), (round, round));
        }
    });
}

#[test]
fn a_queue_with_a_channel_of_the_program_can_be_waited_for_too() {
    on_a_card(NET, "a_queue_with_a_channel_of_the_program_can_be_waited_for_too", || {
        let card = Context::open("ferroce_lo").unwrap();
        let channel = card.completion_channel().unwrap();
        let cq = channel.completion_queue(16).unwrap();
        let (from, to) = pair(&card, &cq);
        to.receive(&[]).post().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| cq.wait(SOON).unwrap());
            from.send(&[]).post().unwrap();
            waits.join().unwrap().result().unwrap();
        });
        cq.wait(SOON).unwrap().result().unwrap();
        assert!(channel.poll().is_none(), "it was not armed");
        cq.arm(Notify::Any);
        to.receive(&[]).post().unwrap();
        from.send(&[]).post().unwrap();
        assert_eq!(channel.wait(SOON).unwrap(), cq);
    });
}

#[test]
fn nothing_comes_in_vain() {
    on_a_card(NET, "nothing_comes_in_vain", || {
        let card = Context::open("ferroce_lo").unwrap();
        let cq = card.completion_queue(16).unwrap();
        let short = Duration::from_millis(20);
        assert_eq!(cq.wait(short).unwrap_err(), WaitError::TimedOut(short));
        assert_eq!(cq.poll_or_wake(&mut [Completion::EMPTY], Waker::noop(), Haste::InTime), 0);
    });
}
