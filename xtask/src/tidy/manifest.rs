//! What the rules need from a `Cargo.toml`.

use toml::de::{DeTable, DeValue};

use super::source::line_of;

/// One dependency as a manifest names it.
#[derive(Debug, PartialEq)]
pub(super) struct Dependency {
    /// The package's true name, also where the manifest renames it.
    pub(super) package: String,
    /// From a `dev-dependencies` table.
    pub(super) dev: bool,
    pub(super) line: usize,
}

/// A parsed manifest.
pub(super) struct Manifest<'a> {
    text: &'a str,
    root: DeTable<'a>,
}

impl<'a> Manifest<'a> {
    /// An error is the parser's own words.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let root = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
        Ok(Self { text, root: root.into_inner() })
    }

    /// Whether `table.key = true`, dotted or in a table of its own.
    pub(super) fn is_true(&self, path: &[&str]) -> bool {
        get(&self.root, path).and_then(DeValue::as_bool) == Some(true)
    }

    pub(super) fn package(&self) -> Option<&str> {
        get(&self.root, &["package", "name"]).and_then(DeValue::as_str)
    }

    /// All dependencies of all tables, those for one target only included.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        let mut found = self.tables_of(&self.root);
        let targets = get(&self.root, &["target"]).and_then(DeValue::as_table);
        for (_, target) in targets.into_iter().flatten() {
            found.extend(target.get_ref().as_table().into_iter().flat_map(|table| self.tables_of(table)));
        }
        found
    }

    fn tables_of(&self, table: &DeTable<'a>) -> Vec<Dependency> {
        let mut found = Vec::new();
        for (name, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let dependencies = get(table, &[name]).and_then(DeValue::as_table);
            for (key, value) in dependencies.into_iter().flatten() {
                let renamed = value.get_ref().as_table().and_then(|table| get(table, &["package"])?.as_str());
                let package = renamed.unwrap_or_else(|| key.get_ref()).to_owned();
                found.push(Dependency { package, dev, line: line_of(self.text, key.span().start) });
            }
        }
        found
    }
}

fn get<'t, 'a>(table: &'t DeTable<'a>, path: &[&str]) -> Option<&'t DeValue<'a>> {
    let (last, parents) = path.split_last()?;
    let mut table = table;
    for name in parents {
        table = table.get(*name)?.get_ref().as_table()?;
    }
    Some(table.get(*last)?.get_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_dependency_table_is_read() {
        let text = "\
[package]
name = \"ferroce-x\"
license.workspace = true
[dependencies]
plain = \"1\"
alias = { package = \"real\", version = \"1\" }
[dev-dependencies]
test = { workspace = true }
[target.'cfg(unix)'.dependencies]
libc = \"0.2\"
[lints]
workspace = true
";
        let manifest = Manifest::parse(text).unwrap();
        let found: Vec<_> = manifest.dependencies().into_iter().map(|d| (d.package, d.dev, d.line)).collect();
        let expected = [("real", false, 6), ("plain", false, 5), ("test", true, 8), ("libc", false, 10)];
        for (package, dev, line) in expected {
            assert!(found.contains(&(package.into(), dev, line)), "{package} is not in {found:?}");
        }
        assert_eq!(found.len(), expected.len());
        assert_eq!(manifest.package(), Some("ferroce-x"));
        assert!(manifest.is_true(&["package", "license", "workspace"]));
        assert!(manifest.is_true(&["lints", "workspace"]));
        assert!(!manifest.is_true(&["package", "edition", "workspace"]));
    }

    #[test]
    fn a_broken_manifest_is_an_error() {
        assert!(Manifest::parse("[package\n").is_err());
    }
}
