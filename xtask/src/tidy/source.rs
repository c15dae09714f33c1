//! Just enough of Rust's lexer to tell code from comments and strings.

/// The same text with the contents of comments, strings and character literals replaced by
/// blanks. Lines and byte offsets stay.
pub(super) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (blank, next) = token(bytes, at);
        for byte in &mut out[blank.0..blank.1] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = next;
    }
    // Whole tokens are blanked, so no character is cut in two.
    String::from_utf8_lossy(&out).into_owned()
}

/// The identifiers and keywords of the code, each with its byte offset.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    code.split_inclusive(|c| !is_word(c)).filter_map(move |piece| {
        let offset = at;
        at += piece.len();
        let word = piece.trim_end_matches(|c| !is_word(c));
        (!word.is_empty()).then_some((offset, word))
    })
}

/// Where `path` (such as `thread::sleep`) stands in the code as whole words.
pub(super) fn mentions<'a>(code: &'a str, path: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(path).map(|(offset, _)| offset).filter(move |&offset| {
        let before = code[..offset].chars().next_back();
        let after = code[offset + path.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The contents of every `#[...]` and `#![...]`, each with its byte offset.
pub(super) fn attributes(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (hash, _) in code.match_indices('#') {
        let rest = &code[hash + 1..];
        let rest = rest.strip_prefix('!').unwrap_or(rest);
        let Some(body) = rest.strip_prefix('[') else { continue };
        let mut depth = 1;
        let end = body.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            depth == 0
        });
        found.push((hash, &body[..end.unwrap_or(body.len())]));
    }
    found
}

/// The code with every item under `#[cfg(test)]` blanked out. Lines and byte offsets stay.
pub(super) fn without_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    for (hash, body) in attributes(code) {
        if code[hash..].starts_with("#[") && body.split_whitespace().collect::<String>() == "cfg(test)" {
            let item = hash + "#[]".len() + body.len();
            for byte in out[hash..end_of_item(code, item)].iter_mut().filter(|byte| **byte != b'\n') {
                *byte = b' ';
            }
        }
    }
    // An item starts and ends with ASCII, so no character is cut in two.
    String::from_utf8_lossy(&out).into_owned()
}

/// Where an item that starts at `from` ends: after its block, or at a semicolon outside of brackets.
pub(super) fn end_of_item(code: &str, from: usize) -> usize {
    let mut depth = 0;
    let end = code[from..].find(|c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth == 0 && (c == ';' || c == '}')
    });
    end.map_or(code.len(), |end| from + end + 1)
}

/// The line, counted from 1, that a byte offset lies in.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What to blank of the token at `at`, as a range, and where the next token starts.
fn token(bytes: &[u8], at: usize) -> ((usize, usize), usize) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let end = find(bytes, at, b"\n");
        return ((at, end), end);
    }
    if rest.starts_with(b"/*") {
        let end = end_of_block_comment(bytes, at);
        return ((at, end), end);
    }
    let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if !after_word && let Some((start, end, next)) = raw_string(bytes, at) {
        return ((start, end), next);
    }
    match rest[0] {
        b'"' => {
            let end = end_of_quoted(bytes, at + 1, b'"');
            ((at + 1, end), (end + 1).min(bytes.len()))
        }
        b'\'' => char_literal(bytes, at).map_or(((at, at), at + 1), |end| ((at + 1, end), end + 1)),
        _ => ((at, at), at + 1),
    }
}

fn end_of_block_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// `r"..."`, `r#"..."#` and the same after `b` or `c`: start and end of the contents, and the next token.
fn raw_string(bytes: &[u8], at: usize) -> Option<(usize, usize, usize)> {
    let r = at + usize::from(matches!(bytes[at], b'b' | b'c'));
    if bytes.get(r) != Some(&b'r') {
        return None;
    }
    let hashes = bytes[r + 1..].iter().take_while(|byte| **byte == b'#').count();
    let start = r + 2 + hashes;
    if bytes.get(start - 1) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let end = find(bytes, start, &close);
    Some((start, end, (end + close.len()).min(bytes.len())))
}

/// The offset of the closing quote, or the end of the text.
fn end_of_quoted(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// The offset of the closing quote of a character literal; `None` for a lifetime.
fn char_literal(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        let end = end_of_quoted(bytes, at + 1, b'\'');
        return (end < bytes.len()).then_some(end);
    }
    let length = match first {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + 1 + length)
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    let from = from.min(bytes.len());
    bytes[from..]
        .windows(what.len())
        .position(|window| window == what)
        .map_or(bytes.len(), |found| from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that are left of a source text.
    fn left(source: &str) -> Vec<String> {
        let code = code_only(source);
        assert_eq!(code.len(), source.len());
        words(&code).map(|(_, word)| word.to_owned()).collect()
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(left("a // no\nb /* no /* no */ no */ c /// no"), ["a", "b", "c"]);
    }

    #[test]
    fn strings_are_not_code() {
        assert_eq!(left(r#"a("no \" no") + b"no" + c"#), ["a", "b", "c"]);
        assert_eq!(left(r##"a(r#"no " // no"#) b"##), ["a", "r", "b"]);
        assert_eq!(left(r#"x(br"no\") y"#), ["x", "br", "y"]);
    }

    #[test]
    fn quotes_as_characters_do_not_open_strings() {
        assert_eq!(left(r#"a('"') b('\'') c('\u{1f}') d"#), ["a", "b", "c", "d"]);
        assert_eq!(left("é('é') b"), ["é", "b"]);
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(
            left("fn f<'a>(x: &'a str, r#type: u8)"),
            ["fn", "f", "a", "x", "a", "str", "r", "type", "u8"]
        );
    }

    #[test]
    fn unfinished_text_does_not_panic() {
        for text in ["\"open", "/* open", "r#\"open", "'", "'\\", "b", "r", "br#", "\"\\"] {
            assert_eq!(code_only(text).len(), text.len());
        }
    }

    #[test]
    fn words_know_where_they_stand() {
        assert_eq!(words("a → bc").collect::<Vec<_>>(), [(0, "a"), ("a → ".len(), "bc")]);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }

    #[test]
    fn mentions_are_whole_words() {
        let code = "std::thread::sleep(x); thread::sleeper(); mythread::sleep()";
        assert_eq!(mentions(code, "thread::sleep").collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn items_for_tests_can_be_left_out() {
        let code = "a #[cfg(test)] #[x(y)] fn f(n: [u8; 2]) { g({}); } b #[ cfg( test ) ] use c; d #[cfg(not(test))] e";
        let left = without_tests(code);
        assert_eq!(left.len(), code.len());
        assert_eq!(
            words(&left).map(|(_, word)| word).collect::<Vec<_>>(),
            ["a", "b", "d", "cfg", "not", "test", "e"]
        );
        assert_eq!(without_tests("#[cfg(test)] mod m {").trim(), "");
    }

    #[test]
    fn attributes_end_at_their_own_bracket() {
        let found = attributes("#![a(b[0])] fn f() {} #[c]");
        assert_eq!(found.iter().map(|(_, body)| *body).collect::<Vec<_>>(), ["a(b[0])", "c"]);
    }
}
