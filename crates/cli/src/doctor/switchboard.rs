//! Ferroce's switchboards: whether the process that leads each of them answers.

use super::facts::{Board, Facts};
use super::finding::Finding;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let boards = match facts.boards() {
        Ok(boards) => boards,
        Err(why) => return vec![Finding::unknown("which processes share a port").seen(why)],
    };
    if boards.is_empty() {
        return vec![Finding::ok("no process of this user has a card open")];
    }
    boards.iter().map(|board| of_board(facts, board)).collect()
}

fn of_board(facts: &Facts, board: &Board) -> Finding {
    let Some(trouble) = &board.trouble else {
        let members = board.members.len();
        let processes = if members == 1 { "process shares" } else { "processes share" };
        return Finding::ok(format!("{members} {processes} the port, and the leader answers"))
            .about(&board.group);
    };
    let Some(pid) = trouble.silent else {
        return Finding::warning("a switchboard cannot be asked")
            .about(&board.group)
            .seen(&trouble.what)
            .command("ferroce switchboard");
    };
    let finding = Finding::fault(format!("process {pid} leads the switchboard and does not answer"))
        .about(&board.group)
        .seen(&trouble.what);
    let stopped = state(facts, pid).filter(|state| state.starts_with(['T', 't']));
    match stopped {
        Some(state) => finding
            .seen(format!("/proc/{pid}/status: State: {state}"))
            .remedy("it is stopped; let it go on, or end it, and another process leads:")
            .command(format!("kill -CONT {pid}")),
        None => finding
            .remedy("look at what it does; when it ends, another process leads:")
            .command(format!("kill {pid}")),
    }
}

fn state(facts: &Facts, pid: u32) -> Option<String> {
    let text = facts.text(&format!("/proc/{pid}/status")).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix("State:"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::facts::Trouble;
    use super::super::finding::Level;
    use super::super::planted::Planted;
    use super::*;

    fn board(trouble: Option<Trouble>) -> Board {
        Board { group: "lo".to_owned(), members: vec![7, 8], trouble }
    }

    fn silent() -> Option<Trouble> {
        Some(Trouble { what: "did not answer".to_owned(), silent: Some(7) })
    }

    #[test]
    fn a_board_that_answers_is_fine() {
        let mut planted = Planted::rxe();
        assert_eq!(check(&planted.facts())[0].what, "no process of this user has a card open");
        planted.answers.boards = Ok(vec![board(None)]);
        let said = &check(&planted.facts())[0];
        assert_eq!((said.level, said.about.as_deref()), (Level::Ok, Some("lo")));
        assert_eq!(said.what, "2 processes share the port, and the leader answers");
    }

    #[test]
    fn a_leader_that_is_stopped_is_let_go_on() {
        let mut planted = Planted::rxe();
        planted.answers.boards = Ok(vec![board(silent())]);
        let facts = planted.facts();
        assert_eq!((check(&facts)[0].level, check(&facts)[0].commands[0].as_str()), (Level::Fault, "kill 7"));
        planted.file("/proc/7/status", "Name:\tx\nState:\tT (stopped)\n");
        assert_eq!(check(&planted.facts())[0].commands, ["kill -CONT 7"]);
    }

    #[test]
    fn what_cannot_be_asked_is_said() {
        let mut planted = Planted::rxe();
        planted.answers.boards = Err("no list".to_owned());
        assert_eq!(check(&planted.facts())[0].level, Level::Unknown);
        planted.answers.boards =
            Ok(vec![board(Some(Trouble { what: "another version".to_owned(), silent: None }))]);
        assert_eq!(check(&planted.facts())[0].level, Level::Warning);
    }
}
