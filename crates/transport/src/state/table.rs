//! Every transition with the attributes that it needs and those that it takes, as data
//! (IBA 11.2.5.2, table 91; the same lists as in `ibv_modify_qp(3)`).

use ferroce_wire::Service::{self, Rc, Uc, Ud, Xrc};

use super::State::{self, Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use super::attributes::AttributeMask;

/// What a transition asks for beside the state.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// Must be given.
    pub(super) required: AttributeMask,
    /// May be given.
    pub(super) optional: AttributeMask,
}

/// What this transition asks for, or nothing if there is no such transition.
pub(super) fn rule(service: Service, from: State, to: State) -> Option<Rule> {
    if matches!(to, Reset | Err) {
        return Some(Rule { required: AttributeMask::empty(), optional: AttributeMask::empty() });
    }
    rows(service, from).find(|row| row.to == to).map(|row| row.rule)
}

/// Where one can go from here, beside RESET and ERR, which are always possible.
pub(super) fn next_states(service: Service, from: State) -> impl Iterator<Item = State> {
    rows(service, from).map(|row| row.to)
}

fn rows(service: Service, from: State) -> impl Iterator<Item = &'static Row> {
    // What a program sets is the same: XRC differs in whose receives are used.
    let service = if service == Xrc { Rc } else { service };
    TABLE.iter().filter(move |row| row.from == from && row.services.contains(&service))
}

/// A transition of some services.
struct Row {
    from: State,
    to: State,
    services: &'static [Service],
    rule: Rule,
}

const fn row(
    (from, to): (State, State),
    services: &'static [Service],
    required: AttributeMask,
    optional: AttributeMask,
) -> Row {
    Row { from, to, services, rule: Rule { required, optional } }
}

/// The attributes with these names.
macro_rules! set {
    ($($name:ident)*) => { AttributeMask::empty()$(.union(AttributeMask::$name))* };
}

/// Services, required attributes, optional attributes. RATE_LIMIT is an addition of our own.
#[rustfmt::skip]
static TABLE: [Row; 22] = [
    row((Reset, Init), &[Rc, Uc], set![PKEY_INDEX PORT ACCESS_FLAGS], set![]),
    row((Reset, Init), &[Ud], set![PKEY_INDEX PORT QKEY], set![]),

    row((Init, Init), &[Rc, Uc], set![], set![PKEY_INDEX PORT ACCESS_FLAGS]),
    row((Init, Init), &[Ud], set![], set![PKEY_INDEX PORT QKEY]),

    row((Init, Rtr), &[Rc],
        set![AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER],
        set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
    row((Init, Rtr), &[Uc],
        set![AV PATH_MTU DEST_QPN RQ_PSN],
        set![ALT_PATH ACCESS_FLAGS PKEY_INDEX]),
    row((Init, Rtr), &[Ud], set![], set![PKEY_INDEX QKEY]),

    row((Rtr, Rts), &[Rc],
        set![SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC],
        set![CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT]),
    row((Rtr, Rts), &[Uc],
        set![SQ_PSN],
        set![CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT]),
    row((Rtr, Rts), &[Ud], set![SQ_PSN], set![CUR_STATE QKEY RATE_LIMIT]),

    row((Rts, Rts), &[Rc],
        set![],
        set![CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE RATE_LIMIT]),
    row((Rts, Rts), &[Uc], set![], set![CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE RATE_LIMIT]),
    row((Rts, Rts), &[Ud], set![], set![CUR_STATE QKEY RATE_LIMIT]),

    row((Rts, Sqd), &[Rc, Uc, Ud], set![], set![EN_SQD_ASYNC_NOTIFY]),

    row((Sqd, Rts), &[Rc], set![], set![CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE]),
    row((Sqd, Rts), &[Uc], set![], set![CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE]),
    row((Sqd, Rts), &[Ud], set![], set![CUR_STATE QKEY]),

    row((Sqd, Sqd), &[Rc],
        set![],
        set![PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC
             ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE]),
    row((Sqd, Sqd), &[Uc], set![], set![AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE]),
    row((Sqd, Sqd), &[Ud], set![], set![PKEY_INDEX QKEY]),

    // RC never comes here: a failed send of a reliable connection ends the whole queue pair.
    row((Sqe, Rts), &[Uc], set![], set![CUR_STATE ACCESS_FLAGS]),
    row((Sqe, Rts), &[Ud], set![], set![CUR_STATE QKEY]),
];
