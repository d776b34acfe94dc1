//! Faults that tests plant to check that they would find them.

/// An enum of faults, each of which a test plants in its own thread.
///
/// The enum gets `is_here`, whether the fault is planted in this thread, which the code at fault asks under `cfg(test)`;
/// and `during`, which runs a test with the fault.
///
/// ```
/// basics::planted! {
///     /// A fault.
///     enum Planted {
///         /// Numbers are added wrongly.
///         AddsWrongly,
///     }
/// }
///
/// fn add(one: u32, other: u32) -> u32 {
///     if Planted::AddsWrongly.is_here() { one } else { one + other }
/// }
///
/// assert_eq!(add(1, 1), 2);
/// assert_eq!(Planted::AddsWrongly.during(|| add(1, 1)), 1);
/// ```
#[macro_export]
macro_rules! planted {
    ($(#[$about:meta])* $see:vis enum $name:ident { $($(#[$fault_about:meta])* $fault:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        $see enum $name {
            $($(#[$fault_about])* $fault,)+
        }

        impl $name {
            /// Whether the fault is planted in this thread.
            $see fn is_here(self) -> bool {
                PLANTED.get() == Some(self)
            }

            /// Runs `test` with the fault.
            $see fn during<T>(self, test: impl FnOnce() -> T) -> T {
                PLANTED.set(Some(self));
                let outcome = test();
                PLANTED.set(None);
                outcome
            }
        }

        thread_local! {
            static PLANTED: std::cell::Cell<Option<$name>> = const { std::cell::Cell::new(None) };
        }
    };
}
