//! A door: a library that has the names and versions of another one's symbols, and goes on to the engine with each.
//!
//! A function of a door is one jump, so that it leaves no trace on the stack: arguments of any number, results, unwinding
//! and cancellation are between the caller and the engine.

use std::fmt::Write as _;

use super::exports::Export;

/// Symbols that are data and not functions. Each is one byte of the door itself, which is 0.
const DATA: &[&str] = &["verbs_allow_disassociate_destroy"];

/// What every name of the engine begins with. Nothing else is called so, whatever is loaded beside it.
const PREFIX: &str = "ferroce_";

/// What a form from long ago is called in the engine.
const OLD_PREFIX: &str = "ferroce_old_";

/// The processors for which doors can be written.
#[derive(Clone, Copy)]
pub(super) enum Processor {
    X86_64,
    Aarch64,
}

impl Processor {
    /// The one that this program runs on, for which cargo compiles the engine too.
    pub(super) const fn here() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 }
    }

    /// Where the jump may land that leads to a function, and the jump that leads on. Neither touches an argument.
    fn jump(self, to: &str) -> String {
        match self {
            Self::X86_64 => format!("  endbr64\n  jmp *{to}@GOTPCREL(%rip)\n"),
            // `hint #34` is `bti c`, by a name that every assembler knows.
            Self::Aarch64 => {
                format!("  hint #34\n  adrp x16, :got:{to}\n  ldr x16, [x16, :got_lo12:{to}]\n  br x16\n")
            }
        }
    }
}

/// What the engine calls the function behind an export, and what the function is called that the engine was compiled from.
/// The old forms have the first name from the beginning.
pub(super) fn behind(export: &Export<'_>) -> Option<(String, String)> {
    match export {
        Export::Now { name, .. } if !DATA.contains(name) => {
            Some((format!("{PREFIX}{name}"), (*name).to_owned()))
        }
        Export::Old { name, .. } => Some((format!("{OLD_PREFIX}{name}"), format!("{OLD_PREFIX}{name}"))),
        _ => None,
    }
}

/// The door's text, for the assembler.
pub(super) fn assembly(exports: &[Export<'_>], processor: Processor) -> String {
    let mut text = String::from("  .text\n");
    for export in exports {
        let Some((engine, _)) = behind(export) else { continue };
        let label = match export {
            Export::Old { name, version } => {
                let _ = writeln!(text, "  .symver old_{name}, {name}@{version}");
                format!("old_{name}")
            }
            Export::Now { name, .. } => (*name).to_owned(),
            Export::Version(_) => continue,
        };
        let _ = writeln!(
            text,
            "  .globl {label}\n  .type {label}, %function\n  .p2align 4\n{label}:\n  .cfi_startproc"
        );
        text.push_str(&processor.jump(&engine));
        // Unwinding from a signal finds a frame as a caller makes it, which the jump leaves as it is.
        let _ = writeln!(text, "  .cfi_endproc\n  .size {label}, .-{label}");
    }
    text.push_str("  .section .rodata\n");
    for export in exports {
        if let Export::Now { name, .. } = export
            && DATA.contains(name)
        {
            let _ = writeln!(
                text,
                "  .globl {name}\n  .type {name}, %object\n{name}: .byte 0\n  .size {name}, 1"
            );
        }
    }
    // No part of it is to be run from the stack.
    text.push_str("  .section .note.GNU-stack, \"\", %progbits\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::exports::read;
    use super::*;

    const LIST: &str =
        "IBVERBS_1.0\na@@IBVERBS_1.1\na@IBVERBS_1.0\nverbs_allow_disassociate_destroy@@IBVERBS_1.1\n";

    #[test]
    fn every_symbol_has_its_jump_and_data_has_none() {
        let text = assembly(&read(LIST), Processor::X86_64);
        for part in [
            "\na:\n  .cfi_startproc\n  endbr64\n  jmp *ferroce_a@GOTPCREL(%rip)\n  .cfi_endproc\n",
            "  .symver old_a, a@IBVERBS_1.0\n",
            "\nold_a:\n  .cfi_startproc\n  endbr64\n  jmp *ferroce_old_a@GOTPCREL(%rip)\n",
            "verbs_allow_disassociate_destroy: .byte 0\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("ferroce_verbs"), "{text}");
    }

    #[test]
    fn the_other_processor_has_doors_too() {
        let text = assembly(&read(LIST), Processor::Aarch64);
        let jump = "\na:\n  .cfi_startproc\n  hint #34\n  adrp x16, :got:ferroce_a\n  ldr x16, [x16, :got_lo12:ferroce_a]\n  \
                    br x16\n  .cfi_endproc\n";
        assert!(text.contains(jump), "{text}");
    }
}
