//! Where tshark has words for a number, they must mean what ours mean.

use super::mistakes;
use super::told::{NAME_OF, Told};

/// The end of the line that tshark shows for the field with this name, in lower
/// case. None for numbers that tshark has no words for.
pub(crate) fn label(name: &str, told: &Told) -> Option<String> {
    match name {
        "infiniband.bth.opcode" => Some(opcode(told)),
        "infiniband.aeth.syndrome.timer" => rnr_timer(told),
        "infiniband.aeth.syndrome.error_code" => Some(nak_code(told)),
        "infiniband.mad.method" => Some("send() (0x03)".to_owned()),
        "infiniband.smplid.smpdata" => Some(message(told)),
        _ => None,
    }
}

fn opcode(told: &Told) -> String {
    let bth = told.header("bth").expect("every packet has a BTH");
    let byte = bth.number("opcode");
    if mistakes::nameless(byte).is_some() {
        return format!("opcode: unknown ({byte})");
    }
    let operation = match bth.text(NAME_OF) {
        "Compare and Swap" => "CmpSwap",
        "Fetch and Add" => "FetchAdd",
        other => other,
    };
    format!("({}) - {operation} ({byte})", bth.text("service")).to_lowercase()
}

/// None for a reserved syndrome: tshark ignores its highest bit.
fn rnr_timer(told: &Told) -> Option<String> {
    let aeth = told.header("aeth")?;
    let syndrome = aeth.number("syndrome");
    (syndrome < 0x80).then(|| {
        let tens_of_micros = aeth.number("rnr_timer_us") / 10;
        format!(": {}.{:02} ms ({})", tens_of_micros / 100, tens_of_micros % 100, syndrome & 0x1f)
    })
}

fn nak_code(told: &Told) -> String {
    let aeth = told.header("aeth").expect("a NAK has an AETH");
    let syndrome = aeth.number("syndrome");
    match aeth.text(NAME_OF).strip_prefix("NAK ") {
        Some(name) => format!(": {} ({})", name.to_lowercase(), syndrome & 0x1f),
        // tshark ignores the highest bit, which makes the syndrome a reserved one.
        None if syndrome >= 0x80 => format!(" ({})", syndrome & 0x1f),
        None => format!(": unknown ({})", syndrome & 0x1f),
    }
}

fn message(told: &Told) -> String {
    let message = told.transport().iter().find(|header| header.key.starts_with("cm."));
    let message = message.expect("a message follows the MAD header");
    let ending =
        if mistakes::undissected(message.key).is_some() { " (dissector not implemented)" } else { "" };
    format!("{}{ending}", message.title.to_lowercase())
}
