//! Columns of numbers for a page, as bytes; and texts as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Columns one behind the other, each at a place that its numbers may have in memory.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) bytes: Vec<u8>,
    /// Name, kind, place and count of each.
    list: Vec<(&'static str, &'static str, usize, usize)>,
}

macro_rules! columns {
    ($($kind:ident $name:literal;)*) => {
        impl Columns {
            $(pub(super) fn $kind(&mut self, name: &'static str, values: impl Iterator<Item = $kind>) {
                self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
                let at = self.bytes.len();
                values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
                let count = (self.bytes.len() - at) / size_of::<$kind>();
                self.list.push((name, $name, at, count));
            })*
        }
    };
}

columns! {
    f64 "Float64Array";
    u64 "BigUint64Array";
    u32 "Uint32Array";
    u16 "Uint16Array";
    u8 "Uint8Array";
}

impl Columns {
    /// Where they are.
    pub(super) fn json(&self) -> String {
        let column = |(name, kind, at, count): &(&str, &str, usize, usize)| {
            format!("\"{name}\":[\"{kind}\",{at},{count}]")
        };
        format!("{{{}}}", self.list.iter().map(column).collect::<Vec<_>>().join(","))
    }
}

/// A text of JSON that may stand in a script of a page: nothing in it ends that.
pub(super) fn json(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..' ' => {
                // Writing to a string never fails.
                let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes bytes as base64.
pub(super) fn base64(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(1 << 16);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() { b'=' } else { letter });
        }
        if text.len() >= 1 << 16 {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_everybody() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            base64(bytes.as_bytes(), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn no_text_ends_the_script_that_it_stands_in() {
        assert_eq!(json("a\"b\\c</script>\n"), "\"a\\\"b\\\\c\\u003c/script\\u003e\\u000a\"");
    }

    #[test]
    fn columns_lie_where_their_numbers_may() {
        let mut columns = Columns::default();
        columns.u8("a", [1, 2, 3].into_iter());
        columns.f64("b", [1.5].into_iter());
        assert_eq!(columns.json(), "{\"a\":[\"Uint8Array\",0,3],\"b\":[\"Float64Array\",8,1]}");
        assert_eq!(columns.bytes.len(), 16);
    }
}
