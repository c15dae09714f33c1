//! What came out: as a table for people, in Markdown for the documentation, and as JSON.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

use crate::cases::CASES;
use crate::lab::{Family, Link};
use crate::pair::Asks;

/// One cell of the table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) case: &'static str,
    pub(crate) column: Column,
    /// What went wrong, if anything did.
    pub(crate) wrong: Option<String>,
}

/// Which side asks the other, over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) link: Link,
    pub(crate) family: Family,
    pub(crate) asks: Asks,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asking = if self.asks == Asks::We { "we ask" } else { "the kernel asks" };
        f.pad(&format!("{} MTU {} {asking}", self.family.name(), self.link.mtu()))
    }
}

/// All cells of a run.
#[derive(Debug, Default)]
pub(crate) struct Table {
    cells: Vec<Cell>,
    /// What both sides counted.
    pub(crate) notes: Vec<String>,
    /// What is wrong with the run as a whole.
    pub(crate) wrong: Vec<String>,
}

impl Table {
    pub(crate) fn push(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    /// Cells that went wrong.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| cell.wrong.is_some())
    }

    /// Cells in all.
    pub(crate) const fn len(&self) -> usize {
        self.cells.len()
    }

    /// A row for each case, a column for each way.
    pub(crate) fn markdown(&self) -> String {
        let columns: Vec<Column> = self.columns();
        let mut text = String::from("| case | shows |");
        for Column { link, family, asks } in &columns {
            let asking = if *asks == Asks::We { "we ask" } else { "the kernel asks" };
            add(&mut text, &format!(" {}, {}, {asking} |", family.name(), link.path_mtu().bytes()));
        }
        add(&mut text, "\n|---|---|");
        add(&mut text, &"---|".repeat(columns.len()));
        add(&mut text, "\n");
        for case in CASES {
            let cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.case == case.name).collect();
            if cells.is_empty() {
                continue;
            }
            add(&mut text, &format!("| `{}` | {} |", case.name, case.shows));
            for column in &columns {
                let cell = cells.iter().find(|cell| cell.column == *column);
                let word = match cell.map(|cell| &cell.wrong) {
                    None => "",
                    Some(None) => "ok",
                    Some(Some(_)) => "FAILED",
                };
                add(&mut text, &format!(" {word} |"));
            }
            add(&mut text, "\n");
        }
        for note in &self.notes {
            add(&mut text, &format!("\n{note}\n"));
        }
        text
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> Value {
        let cells = self.cells.iter().map(|Cell { case, column: Column { link, family, asks }, wrong }| {
            json!({
                "case": case,
                "requester": if *asks == Asks::We { "ferroce" } else { "kernel" },
                "family": family.name(),
                "path_mtu": link.path_mtu().bytes(),
                "passed": wrong.is_none(),
                "wrong": wrong,
            })
        });
        json!({ "cells": cells.collect::<Vec<_>>(), "notes": self.notes, "wrong": self.wrong })
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        for link in Link::ALL {
            for family in Family::ALL {
                for asks in [Asks::We, Asks::Kernel] {
                    let column = Column { link, family, asks };
                    columns.extend(self.cells.iter().any(|cell| cell.column == column).then_some(column));
                }
            }
        }
        columns
    }
}

fn add(text: &mut String, more: &str) {
    // Writing to a string does not fail.
    let _ = text.write_str(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = Column { link: Link::Usual, family: Family::V6, asks: Asks::Kernel };
        let mut table = Table::default();
        table.push(Cell { case: "send", column, wrong: None });
        table.push(Cell { case: "read", column, wrong: Some("late".into()) });
        table
    }

    #[test]
    fn only_what_ran_is_in_the_table() {
        let text = table().markdown();
        assert!(
            text.starts_with("| case | shows | IPv6, 1024, the kernel asks |\n|---|---|---|\n"),
            "{text}"
        );
        assert!(text.contains("| `send` | RC SEND | ok |\n"), "{text}");
        assert!(text.contains("| `read` | RC RDMA READ | FAILED |\n"), "{text}");
        assert_eq!(text.lines().count(), 4);
        assert_eq!(table().json()["cells"][1]["wrong"], "late");
    }
}
