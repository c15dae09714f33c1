//! Programs that must not compile: what the types see to. Each file in `ui` is one, beside what the
//! compiler says about it. `TRYBUILD=overwrite` writes these answers anew.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
