//! What was measured goes into a page of the documentation, between two markers.

use std::fs;
use std::path::Path;

use crate::Result;

/// Replaces what stands between the markers `<!-- name: begin -->` and `<!-- name: end -->` of a Markdown file.
pub(crate) fn replace(file: &Path, name: &str, text: &str) -> Result<()> {
    let page = fs::read_to_string(file)?;
    fs::write(file, between(&page, name, text)?)?;
    Ok(())
}

fn between(page: &str, name: &str, text: &str) -> Result<String> {
    let [begin, end] = ["begin", "end"].map(|side| format!("<!-- {name}: {side} -->"));
    let missing =
        |marker: &str| format!("the file has no line {marker:?}: add it where the text shall stand");
    let (before, rest) = page.split_once(&begin).ok_or_else(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).ok_or_else(|| missing(&end))?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_replaces_the_one_before() {
        let page = "a\n<!-- t: begin -->\nold\n<!-- t: end -->\nb\n";
        let once = between(page, "t", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- t: begin -->\n\nnew\n\n<!-- t: end -->\nb\n");
        assert_eq!(between(&once, "t", "new\n").unwrap(), once);
        assert!(between("a", "t", "b").unwrap_err().to_string().contains("add it where"));
    }
}
