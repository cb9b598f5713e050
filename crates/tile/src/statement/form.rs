//! Forms of programs: the surface, and the core program.

use std::fmt;

use crate::expr::Expr;
use crate::printer::int;
use crate::printer::names::Names;

/// A form of programs: types of what the surface program and the [core program](crate::core) write differently. Every statement is
/// defined once, for both.
pub trait Form: Copy + PartialEq + Eq + std::hash::Hash + fmt::Debug + Default + 'static {
    /// An integer that is known when the kernel is compiled.
    type Int: Clone + PartialEq + Eq + std::hash::Hash + fmt::Debug;
    /// An entry of an index into a view or a shared tensor.
    type Index: Clone + PartialEq + fmt::Debug;
    /// The name of a role, where roles are statements.
    type RoleName: Clone + PartialEq + fmt::Debug;

    /// The value of an integer; `None` before constants have values.
    fn value(int: &Self::Int) -> Option<i64>;
    /// The integer as an expression.
    fn int(int: &Self::Int) -> Expr;
    /// The text of a role's name.
    fn role(name: &Self::RoleName) -> &str;
    /// Writes an entry of an index as text.
    fn write_index(out: &mut dyn fmt::Write, names: &dyn Names, index: &Self::Index) -> fmt::Result;
}

/// The form of the programs that authors write: integers are expressions over constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Surface;

impl Form for Surface {
    type Int = Expr;
    type Index = Expr;
    type RoleName = String;

    fn value(int: &Expr) -> Option<i64> {
        int.as_int()
    }

    fn int(int: &Expr) -> Expr {
        int.clone()
    }

    fn role(name: &String) -> &str {
        name
    }

    fn write_index(out: &mut dyn fmt::Write, names: &dyn Names, index: &Expr) -> fmt::Result {
        int::write_expr(out, names, index)
    }
}
