//! Faults by name: how the kinds of a program are declared, found on its command line, and listed.

/// Declares `Kind`: each with its sentence, its name, and how often it is drawn against the others; 0 for what has to be
/// asked for by name.
macro_rules! kinds {
    ($($(#[doc = $about:literal])+ $kind:ident $name:literal $weight:literal,)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[doc = $about])+ $kind,)*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// What it is called on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// How often it is drawn against the others; 0 for what has to be asked for by name.
            pub const fn weight(self) -> u32 {
                match self { $(Self::$kind => $weight,)* }
            }

            /// What it is, and where it happens in the real world.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$kind => concat!($($about),+),)* }
            }
        }

        impl std::fmt::Display for Kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for Kind {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
                    let all: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
                    format!("there is no fault {name:?}; there are {}", all.join(", "))
                })
            }
        }

        impl Kind {
            /// All of them, each with what it is: what a command lists.
            pub fn list() -> String {
                let line = |kind: &Self| {
                    let mark = if kind.weight() == 0 { " (only by name)" } else { "" };
                    format!("{kind}{mark}\n   {}\n", kind.about().trim())
                };
                Self::ALL.iter().map(line).collect()
            }
        }
    };
}

pub(crate) use kinds;
