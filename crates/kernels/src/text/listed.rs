//! Operators of the table as tools see them.

use super::operator::TextOperator;
use super::space;
use crate::operators::Operator;
use crate::parts::Estimate;
use crate::tuning::{Launch, Point, Tuning};

/// An operator of the table, as a type: tools take functions.
pub(crate) trait Written: 'static {
    const OPERATOR: &'static TextOperator;
}

/// The operator, as tools see it.
pub(crate) const fn listed<T: Written>() -> Operator {
    Operator {
        name: T::OPERATOR.name,
        about: T::OPERATOR.about,
        needs: T::OPERATOR.needs,
        parameters: || T::OPERATOR.parameters(),
        programs: |given| T::OPERATOR.programs(given),
        tuning: Some(Tuning {
            sizes: T::OPERATOR.sizes,
            meaning: &["dtype"],
            alike: &[],
            family: &["form", "bm", "threads"],
            secondary: &[("threads", &["64", "128", "256", "512", "1024"])],
            space: |chip, sizes, pinned| T::OPERATOR.points(chip.arch, sizes, pinned),
            point: |chip, sizes, given| {
                let setting = T::OPERATOR.setting(given)?;
                let values = T::OPERATOR.values(sizes)?;
                Ok(Point {
                    parameters: T::OPERATOR.differences(&setting)?,
                    estimate: space::estimate(T::OPERATOR, &setting, chip.arch, &values),
                    suits: T::OPERATOR.holds(&setting, &values),
                })
            },
            estimate: |chip, sizes, given| {
                let setting = T::OPERATOR.setting(given)?;
                let values = T::OPERATOR.values(sizes)?;
                Ok(Estimate::whole(space::estimate(T::OPERATOR, &setting, chip.arch, &values)))
            },
            reject: |arch, given| T::OPERATOR.reject(arch, given),
            launch: |_, sizes, _| Ok(Launch::of(sizes)),
            same: |_, _, _| Ok(None),
        }),
    }
}
