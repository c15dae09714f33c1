//! What the rules need from a `Cargo.toml`.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::source::line_of;

/// One dependency as a manifest names it.
#[derive(Debug, PartialEq)]
pub(super) struct Dependency {
    /// The package's true name, also where this manifest or the workspace's renames it.
    pub(super) package: String,
    /// From a `dev-dependencies` table.
    pub(super) dev: bool,
    pub(super) line: usize,
}

/// What `[workspace.dependencies]` calls by another name: the name there, and the package's own.
pub(super) type Renames = BTreeMap<String, String>;

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

    /// The packages that this manifest, as the workspace's root, renames for its members.
    pub(super) fn renames(&self) -> Renames {
        let table = get(&self.root, &["workspace", "dependencies"]).and_then(DeValue::as_table);
        let renamed = |(key, value): (&Spanned<DeString<'a>>, &Spanned<DeValue<'a>>)| {
            Some((key.get_ref().to_string(), field(value.get_ref(), "package")?.as_str()?.to_owned()))
        };
        table.into_iter().flatten().filter_map(renamed).collect()
    }

    /// All dependencies of all tables, those for one target only included. `renames` are those of
    /// the workspace's root.
    pub(super) fn dependencies(&self, renames: &Renames) -> Vec<Dependency> {
        let mut found = self.tables_of(&self.root, renames);
        let targets = get(&self.root, &["target"]).and_then(DeValue::as_table);
        for (_, target) in targets.into_iter().flatten() {
            found.extend(
                target.get_ref().as_table().into_iter().flat_map(|table| self.tables_of(table, renames)),
            );
        }
        found
    }

    fn tables_of(&self, table: &DeTable<'a>, renames: &Renames) -> Vec<Dependency> {
        let mut found = Vec::new();
        for (name, dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let dependencies = get(table, &[name]).and_then(DeValue::as_table);
            for (key, value) in dependencies.into_iter().flatten() {
                let (name, value) = (key.get_ref().as_ref(), value.get_ref());
                let inherited = field(value, "workspace").and_then(DeValue::as_bool) == Some(true);
                let renamed = if inherited {
                    renames.get(name).map(String::as_str)
                } else {
                    field(value, "package").and_then(DeValue::as_str)
                };
                let package = renamed.unwrap_or(name).to_owned();
                found.push(Dependency { package, dev, line: line_of(self.text, key.span().start) });
            }
        }
        found
    }
}

/// `value.name`, if the value is a table that has it.
fn field<'t, 'a>(value: &'t DeValue<'a>, name: &str) -> Option<&'t DeValue<'a>> {
    get(value.as_table()?, &[name])
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
        let found: Vec<_> =
            manifest.dependencies(&Renames::new()).into_iter().map(|d| (d.package, d.dev, d.line)).collect();
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
    fn the_workspace_may_rename_too() {
        let root =
            "[workspace.dependencies]\nplain = \"1\"\nc-stuff = { package = \"libc\", version = \"0.2\" }\n";
        let renames = Manifest::parse(root).unwrap().renames();
        let member = "[dependencies]\nplain.workspace = true\nc-stuff = { workspace = true }\n\
                      [dev-dependencies]\nc-stuff = \"1\"\n";
        let found = Manifest::parse(member).unwrap().dependencies(&renames);
        let mut packages: Vec<_> = found.iter().map(|d| (d.line, d.package.as_str())).collect();
        packages.sort_unstable();
        assert_eq!(packages, [(2, "plain"), (3, "libc"), (5, "c-stuff")]);
    }

    #[test]
    fn a_broken_manifest_is_an_error() {
        assert!(Manifest::parse("[package\n").is_err());
    }
}
