//! Just enough of Markdown to find links, headings and what stands in backticks.

/// One line of prose: fenced code is left out.
pub(super) struct Line<'a> {
    /// Counted from 1.
    pub(super) number: usize,
    text: &'a str,
}

/// The lines outside fenced code.
pub(super) fn prose(text: &str) -> Vec<Line<'_>> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let trimmed = text.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => lines.push(Line { number: index + 1, text }),
            (Some(_), _) => {}
        }
    }
    lines
}

impl Line<'_> {
    /// What stands in backticks on this line.
    pub(super) fn code_spans(&self) -> Vec<&str> {
        self.text.split('`').skip(1).step_by(2).collect()
    }

    /// The targets of all links and images on this line.
    pub(super) fn links(&self) -> Vec<String> {
        // Every other piece stands in backticks; blank it, links there are examples.
        let pieces = self.text.split('`').enumerate();
        let text: String = pieces.map(|(i, piece)| if i % 2 == 0 { piece } else { "code" }).collect();
        let mut found: Vec<String> = Vec::new();
        for (at, _) in text.match_indices("](") {
            found.extend(link_target(&text[at + 2..]));
        }
        for mark in ["href=\"", "src=\""] {
            let values =
                text.match_indices(mark).filter_map(|(at, _)| text[at + mark.len()..].split('"').next());
            found.extend(values.map(str::to_owned));
        }
        if let Some((label, target)) = text.trim_start().split_once("]: ")
            && label.starts_with('[')
            && !label.starts_with("[^")
        {
            found.extend(target.split_whitespace().next().map(str::to_owned));
        }
        found
    }

    fn heading(&self) -> Option<&str> {
        let rest = self.text.trim_start_matches('#');
        let level = self.text.len() - rest.len();
        ((1..=6).contains(&level) && rest.starts_with(' ')).then(|| rest.trim())
    }
}

/// The anchors of a page: its headings by GitHub's rule, and explicit ids.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in prose(text) {
        for (at, _) in line.text.match_indices(" id=\"") {
            found.extend(line.text[at + 5..].split('"').next().map(str::to_owned));
        }
        let Some(heading) = line.heading() else { continue };
        let slug = slug(heading);
        let twins = (1..).map(|n| format!("{slug}-{n}"));
        let free = std::iter::once(slug.clone()).chain(twins).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// GitHub's rule: the visible text in lower case, without punctuation, blanks as hyphens.
fn slug(heading: &str) -> String {
    let mut visible = String::new();
    let mut rest = heading;
    // `[text](target)` shows only its text.
    while let Some((before, after)) = rest.split_once("](") {
        visible.push_str(before);
        rest = after.split_once(')').map_or("", |(_, tail)| tail);
    }
    visible.push_str(rest);
    let kept = visible.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The target of a link whose `](` has just been read.
fn link_target(rest: &str) -> Option<String> {
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    })?;
    // A title may follow the target.
    let target = rest[..end].split_whitespace().next().unwrap_or_default();
    Some(target.trim_matches(['<', '>']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(text: &str) -> Vec<String> {
        prose(text).iter().flat_map(Line::links).collect()
    }

    #[test]
    fn links_of_every_form_are_found() {
        assert_eq!(links("[a](b.md) ![c](d.png \"title\") [e](<f.md>)"), ["b.md", "d.png", "f.md"]);
        assert_eq!(links("[ref]: g.md\n<a href=\"h.md\"><img src=\"i.svg\"></a>"), ["g.md", "h.md", "i.svg"]);
        assert_eq!(links("[wiki](https://x.org/a_(b))"), ["https://x.org/a_(b)"]);
    }

    #[test]
    fn code_holds_no_links() {
        assert!(links("`[a](b)`\n```\n[c](d)\n```\n").is_empty());
        assert_eq!(prose("see `crates/x` and `y`")[0].code_spans(), ["crates/x", "y"]);
    }

    #[test]
    fn anchors_follow_githubs_rule() {
        let page = "# One, two & `three`\n## A [link](x.md) here\n# Same\n# Same\n```\n# not one\n```\n<a id=\"own\"></a>\n#no";
        assert_eq!(anchors(page), ["one-two--three", "a-link-here", "same", "same-1", "own"]);
    }
}
