extern crate std;

use std::string::{String, ToString};
use std::vec::Vec;

use ferroce_wire::{PathMtu, Psn, QKey, Qpn, Service};

use super::*;
use crate::work::Access;

const LIMITS: Limits = Limits { max_rd_atomic: 16, max_dest_rd_atomic: 32 };

/// One transition as the manual pages list it.
struct Listed {
    from: State,
    to: State,
    required: AttributeMask,
    optional: AttributeMask,
}

/// The transitions of a service, written a second time and in another order than the table:
/// one line each, `from to: required / optional`.
fn listed(service: Service) -> Vec<Listed> {
    let lines = match service {
        Service::Rc | Service::Xrc => {
            "RESET INIT: ACCESS_FLAGS PKEY_INDEX PORT /
             INIT INIT: / ACCESS_FLAGS PKEY_INDEX PORT
             INIT RTR: AV DEST_QPN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER PATH_MTU RQ_PSN / \
                 ACCESS_FLAGS ALT_PATH PKEY_INDEX
             RTR RTS: MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY SQ_PSN TIMEOUT / \
                 ACCESS_FLAGS ALT_PATH CUR_STATE MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT
             RTS RTS: / ACCESS_FLAGS ALT_PATH CUR_STATE MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT
             RTS SQD: / EN_SQD_ASYNC_NOTIFY
             SQD RTS: / ACCESS_FLAGS ALT_PATH CUR_STATE MIN_RNR_TIMER PATH_MIG_STATE
             SQD SQD: / \
                 ACCESS_FLAGS ALT_PATH AV MAX_DEST_RD_ATOMIC MAX_QP_RD_ATOMIC MIN_RNR_TIMER PATH_MIG_STATE \
                 PKEY_INDEX PORT RETRY_CNT RNR_RETRY TIMEOUT"
        }
        Service::Uc => {
            "RESET INIT: ACCESS_FLAGS PKEY_INDEX PORT /
             INIT INIT: / ACCESS_FLAGS PKEY_INDEX PORT
             INIT RTR: AV DEST_QPN PATH_MTU RQ_PSN / ACCESS_FLAGS ALT_PATH PKEY_INDEX
             RTR RTS: SQ_PSN / ACCESS_FLAGS ALT_PATH CUR_STATE PATH_MIG_STATE RATE_LIMIT
             RTS RTS: / ACCESS_FLAGS ALT_PATH CUR_STATE PATH_MIG_STATE RATE_LIMIT
             RTS SQD: / EN_SQD_ASYNC_NOTIFY
             SQD RTS: / ACCESS_FLAGS ALT_PATH CUR_STATE PATH_MIG_STATE
             SQD SQD: / ACCESS_FLAGS ALT_PATH AV PATH_MIG_STATE PKEY_INDEX
             SQE RTS: / ACCESS_FLAGS CUR_STATE"
        }
        Service::Ud => {
            "RESET INIT: PKEY_INDEX PORT QKEY /
             INIT INIT: / PKEY_INDEX PORT QKEY
             INIT RTR: / PKEY_INDEX QKEY
             RTR RTS: SQ_PSN / CUR_STATE QKEY RATE_LIMIT
             RTS RTS: / CUR_STATE QKEY RATE_LIMIT
             RTS SQD: / EN_SQD_ASYNC_NOTIFY
             SQD RTS: / CUR_STATE QKEY
             SQD SQD: / PKEY_INDEX QKEY
             SQE RTS: / CUR_STATE QKEY"
        }
        Service::Cnp | Service::RcOwn | Service::XrcOwn => "",
    };
    let everywhere = State::ALL.into_iter().flat_map(|from| [(from, State::Reset), (from, State::Err)]);
    let nothing = AttributeMask::empty();
    let mut list: Vec<_> =
        everywhere.map(|(from, to)| Listed { from, to, required: nothing, optional: nothing }).collect();
    list.extend(lines.lines().map(|line| {
        let (states, attributes) = line.split_once(':').unwrap();
        let (from, to) = states.trim().split_once(' ').unwrap();
        let (required, optional) = attributes.split_once('/').unwrap();
        Listed { from: state(from), to: state(to), required: mask(required), optional: mask(optional) }
    }));
    list
}

fn state(name: &str) -> State {
    State::ALL.into_iter().find(|state| state.name() == name).unwrap()
}

fn mask(names: &str) -> AttributeMask {
    names.split_whitespace().map(|name| AttributeMask::from_name(name).unwrap()).collect()
}

const SERVICES: [Service; 4] = [Service::Rc, Service::Uc, Service::Ud, Service::Xrc];

/// A change with these bits and values that no rule objects to.
fn change(from: State, to: State, given: AttributeMask) -> Attributes {
    Attributes { current_state: from, ..Attributes::to(to).with(given) }
}

fn text(error: Result<State, ModifyError>) -> String {
    error.unwrap_err().to_string()
}

#[test]
fn exactly_the_listed_pairs_of_states_are_transitions() {
    for service in SERVICES {
        let list = listed(service);
        for from in State::ALL {
            for to in State::ALL {
                let found = list.iter().find(|listed| (listed.from, listed.to) == (from, to));
                let given = found.map_or(AttributeMask::empty(), |listed| listed.required);
                let expected = match found {
                    Some(_) => Ok(to),
                    None => Err(ModifyError::NoTransition { service, from, to }),
                };
                let seen = check(service, from, &change(from, to, given), &LIMITS);
                assert_eq!(seen, expected, "{service:?} {from} to {to}");
            }
        }
    }
}

#[test]
fn each_required_attribute_is_missed_by_name() {
    for service in SERVICES {
        for Listed { from, to, required, optional } in listed(service) {
            for missing in required {
                let given = required.union(optional).difference(missing);
                let seen = check(service, from, &change(from, to, given), &LIMITS);
                assert_eq!(seen, Err(ModifyError::Missing { service, from, to, missing, required }));
                assert!(text(seen).contains(&missing.to_string()));
            }
        }
    }
}

#[test]
fn optional_attributes_are_taken_and_all_others_refused_by_name() {
    for service in SERVICES {
        for Listed { from, to, required, optional } in listed(service) {
            let allowed = required.union(optional);
            for extra in AttributeMask::all() {
                let seen = check(service, from, &change(from, to, required.union(extra)), &LIMITS);
                if allowed.union(AttributeMask::STATE).contains(extra) {
                    assert_eq!(seen, Ok(to), "{service:?} {from} to {to} with {extra}");
                } else {
                    let surplus = extra;
                    assert_eq!(seen, Err(ModifyError::NotAllowed { service, from, to, surplus, allowed }));
                    assert!(text(seen).contains(&surplus.to_string()));
                }
            }
            let all = change(from, to, allowed);
            assert_eq!(check(service, from, &all, &LIMITS), Ok(to));
        }
    }
}

#[test]
fn without_state_a_queue_pair_stays_where_that_is_a_transition() {
    let qkey = Attributes::new().with_qkey(QKey(7));
    assert_eq!(check(Service::Ud, State::Rts, &qkey, &LIMITS), Ok(State::Rts));
    assert_eq!(
        text(check(Service::Ud, State::Rtr, &qkey, &LIMITS)),
        "RTR to RTR is not a transition of UD; from RTR one can go to RTS, ERR, RESET"
    );
    // The field alone, without its bit, says nothing.
    let unsaid = Attributes { state: State::Err, ..Attributes::new() };
    assert_eq!(check(Service::Rc, State::Init, &unsaid, &LIMITS), Ok(State::Init));
}

#[test]
fn a_wrong_belief_about_the_state_is_refused() {
    for actual in State::ALL {
        for given in State::ALL.into_iter().filter(|&given| given != actual) {
            let seen =
                check(Service::Ud, actual, &Attributes::to(State::Rts).with_current_state(given), &LIMITS);
            assert_eq!(seen, Err(ModifyError::OtherState { given, actual }));
        }
    }
    let back = Attributes::to(State::Rts).with_current_state(State::Sqe);
    assert_eq!(check(Service::Ud, State::Sqe, &back, &LIMITS), Ok(State::Rts));
}

#[test]
fn numbers_are_taken_up_to_their_limit() {
    type Setter = fn(Attributes, u8) -> Attributes;
    let ranges: [(&str, Setter, u8); 6] = [
        ("TIMEOUT", Attributes::with_timeout, 31),
        ("RETRY_CNT", Attributes::with_retry_count, 7),
        ("RNR_RETRY", Attributes::with_rnr_retry, 7),
        ("MIN_RNR_TIMER", Attributes::with_min_rnr_timer, 31),
        ("MAX_QP_RD_ATOMIC", Attributes::with_max_rd_atomic, LIMITS.max_rd_atomic),
        ("MAX_DEST_RD_ATOMIC", Attributes::with_max_dest_rd_atomic, LIMITS.max_dest_rd_atomic),
    ];
    for (name, set, max) in ranges {
        for given in 0..=u8::MAX {
            let seen = check(Service::Rc, State::Sqd, &set(Attributes::new(), given), &LIMITS);
            if given <= max {
                assert_eq!(seen, Ok(State::Sqd), "{name} {given}");
            } else {
                assert_eq!(seen, Err(ModifyError::OutOfRange { attribute: mask(name), given, max }));
            }
        }
    }
    // A field whose bit is not set is not looked at.
    let unsaid = Attributes { timeout: 200, retry_count: 200, ..Attributes::to(State::Err) };
    assert_eq!(check(Service::Rc, State::Rts, &unsaid, &LIMITS), Ok(State::Err));
}

#[test]
fn a_connection_comes_up() {
    let steps = [
        Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::REMOTE_WRITE),
        Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B4096)
            .with_dest_qpn(Qpn::new(0x01_0004))
            .with_rq_psn(Psn::new(5))
            .with_max_dest_rd_atomic(16)
            .with_min_rnr_timer(12),
        Attributes::to(State::Rts)
            .with_sq_psn(Psn::new(9))
            .with_timeout(14)
            .with_retry_count(7)
            .with_rnr_retry(7)
            .with_max_rd_atomic(16),
        Attributes::to(State::Sqd).with_notify_drained(true),
        Attributes::new().with_timeout(18),
        Attributes::to(State::Rts),
        Attributes::to(State::Err),
        Attributes::to(State::Reset),
    ];
    let mut state = State::default();
    for step in steps {
        state = check(Service::Rc, state, &step, &LIMITS).unwrap();
    }
    assert_eq!(state, State::Reset);
}

#[test]
fn every_setter_sets_its_own_field_and_bit() {
    let all = Attributes::to(State::Rts)
        .with_current_state(State::Rtr)
        .with_access(Access::REMOTE_READ)
        .with_pkey_index(1)
        .with_port(2)
        .with_qkey(QKey(3))
        .with_path_mtu(PathMtu::B256)
        .with_timeout(4)
        .with_retry_count(5)
        .with_rnr_retry(6)
        .with_rq_psn(Psn::new(7))
        .with_sq_psn(Psn::new(8))
        .with_max_rd_atomic(9)
        .with_max_dest_rd_atomic(10)
        .with_min_rnr_timer(11)
        .with_dest_qpn(Qpn::new(12))
        .with_notify_drained(true)
        .with_rate_limit(13);
    let device_owned = mask("AV ALT_PATH PATH_MIG_STATE CAP");
    let expected = Attributes {
        mask: AttributeMask::all().difference(device_owned),
        state: State::Rts,
        current_state: State::Rtr,
        access: Access::REMOTE_READ,
        pkey_index: 1,
        port: 2,
        qkey: QKey(3),
        path_mtu: PathMtu::B256,
        timeout: 4,
        retry_count: 5,
        rnr_retry: 6,
        rq_psn: Psn::new(7),
        sq_psn: Psn::new(8),
        max_rd_atomic: 9,
        max_dest_rd_atomic: 10,
        min_rnr_timer: 11,
        dest_qpn: Qpn::new(12),
        notify_drained: true,
        rate_limit: 13,
        draining: false,
    };
    assert_eq!(all, expected);
    assert_eq!(Attributes::to(State::Rts).with_timeout(4).mask, mask("STATE TIMEOUT"));
    assert_eq!(Attributes::to(State::Sqd).with_notify_drained(true).mask, mask("STATE EN_SQD_ASYNC_NOTIFY"));
}

#[test]
fn errors_say_what_was_given_and_what_is_allowed() {
    let seen = |service, from, attributes: Attributes| text(check(service, from, &attributes, &LIMITS));
    assert_eq!(
        seen(Service::Cnp, State::Reset, Attributes::to(State::Init)),
        "CNP has no queue pairs; RC, UC, UD and XRC have"
    );
    assert_eq!(
        seen(Service::Rc, State::Init, Attributes::to(State::Rts)),
        "INIT to RTS is not a transition of RC; from INIT one can go to INIT, RTR, ERR, RESET"
    );
    assert_eq!(
        seen(Service::Xrc, State::Sqe, Attributes::to(State::Rts)),
        "SQE to RTS is not a transition of XRC; from SQE one can go to ERR, RESET"
    );
    assert_eq!(
        seen(Service::Uc, State::Init, Attributes::to(State::Rtr).with(AttributeMask::AV)),
        "INIT to RTR of UC lacks PATH_MTU, RQ_PSN, DEST_QPN; it needs AV, PATH_MTU, RQ_PSN, DEST_QPN"
    );
    assert_eq!(
        seen(Service::Ud, State::Rts, Attributes::new().with(AttributeMask::AV | AttributeMask::CAP)),
        "RTS to RTS of UD does not take AV, CAP; it takes CUR_STATE, QKEY, RATE_LIMIT"
    );
    assert_eq!(
        seen(Service::Ud, State::Rts, Attributes::to(State::Err).with_qkey(QKey(7))),
        "RTS to ERR of UD does not take QKEY; it takes nothing"
    );
    assert_eq!(
        seen(
            Service::Ud,
            State::Rts,
            Attributes::new().with(AttributeMask::from_bits_retain((1 << 21) | (1 << 7)))
        ),
        "RTS to RTS of UD does not take AV, unknown bits 0x200000; it takes CUR_STATE, QKEY, RATE_LIMIT"
    );
    assert_eq!(
        seen(Service::Ud, State::Sqe, Attributes::to(State::Rts).with_current_state(State::Rts)),
        "CUR_STATE is RTS, but the queue pair is in SQE"
    );
    assert_eq!(
        seen(Service::Rc, State::Sqd, Attributes::new().with_max_rd_atomic(17)),
        "MAX_QP_RD_ATOMIC is 17; at most 16 is allowed"
    );
}

#[test]
fn states_have_the_numbers_of_verbs_and_allow_what_they_should() {
    // takes receives, takes sends, handles requests, handles responses, sends requests, starts requests
    let expected = [
        ("RESET", [false, false, false, false, false, false]),
        ("INIT", [true, false, false, false, false, false]),
        ("RTR", [true, false, true, false, false, false]),
        ("RTS", [true, true, true, true, true, true]),
        ("SQD", [true, true, true, true, true, false]),
        ("SQE", [true, true, true, false, false, false]),
        ("ERR", [true, true, false, false, false, false]),
    ];
    for (code, (name, allows)) in (0u8..).zip(expected) {
        let state = State::from_code(code).unwrap();
        assert_eq!((state.code(), state.to_string()), (code, String::from(name)));
        assert_eq!(
            [
                state.takes_receives(),
                state.takes_sends(),
                state.handles_requests(),
                state.handles_responses(),
                state.sends_requests(),
                state.starts_requests(),
            ],
            allows,
            "{name}"
        );
    }
    assert_eq!(State::from_code(7), None);
}

#[test]
fn mask_bits_are_those_of_verbs() {
    let names = "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT \
                 RETRY_CNT RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN \
                 MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN";
    for (bit, name) in names.split_whitespace().enumerate() {
        assert_eq!(mask(name).bits(), 1 << bit, "{name}");
    }
    assert_eq!(AttributeMask::RATE_LIMIT.bits(), 1 << 25);
    assert_eq!(AttributeMask::all().bits(), ((1 << 21) - 1) | (1 << 25));
}
