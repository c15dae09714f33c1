//! Tests that are run over both paths between processes.

/// Makes of each function, which takes its addresses, two tests: over the network in `wire`, and through memory in `shared`, with
/// addresses of its own for each. `over_both! { it_works: [1, 2], [11, 11]; }`
#[macro_export]
macro_rules! over_both {
    ($($name:ident: $wire:expr, $shared:expr;)*) => {
        mod wire {
            $(#[test]
            fn $name() {
                super::$name($wire);
            })*
        }

        mod shared {
            $(#[test]
            fn $name() {
                super::$name($shared);
            })*
        }
    };
}
