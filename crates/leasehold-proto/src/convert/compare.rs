//! Comparisons.

use leasehold_mvcc::{Compare, CompareResult, CompareTarget, LeaseId, Revision};

use super::entry::range_of;
use crate::pb::etcdserverpb as pb;
use pb::compare::{CompareResult as WireResult, CompareTarget as WireTarget, TargetUnion};

impl From<CompareResult> for WireResult {
    fn from(result: CompareResult) -> Self {
        match result {
            CompareResult::Equal => Self::Equal,
            CompareResult::Greater => Self::Greater,
            CompareResult::Less => Self::Less,
            CompareResult::NotEqual => Self::NotEqual,
        }
    }
}

impl From<WireResult> for CompareResult {
    fn from(result: WireResult) -> Self {
        match result {
            WireResult::Equal => Self::Equal,
            WireResult::Greater => Self::Greater,
            WireResult::Less => Self::Less,
            WireResult::NotEqual => Self::NotEqual,
        }
    }
}

impl From<Compare> for pb::Compare {
    fn from(compare: Compare) -> Self {
        let (target, union) = match compare.target {
            CompareTarget::Version(version) => (WireTarget::Version, TargetUnion::Version(version)),
            CompareTarget::Create(revision) => {
                (WireTarget::Create, TargetUnion::CreateRevision(revision.get()))
            }
            CompareTarget::Mod(revision) => (WireTarget::Mod, TargetUnion::ModRevision(revision.get())),
            CompareTarget::Value(value) => (WireTarget::Value, TargetUnion::Value(value)),
            CompareTarget::Lease(lease) => (WireTarget::Lease, TargetUnion::Lease(lease.get())),
        };
        Self {
            result: WireResult::from(compare.result).into(),
            target: target.into(),
            key: compare.range.start.to_bytes(),
            range_end: compare.range.end.to_bytes(),
            target_union: Some(union),
        }
    }
}

/// Every comparison has a meaning to etcd, even one with numbers it does not know, so this cannot fail.
///
/// The value compared to is the one the target asks for; where another was sent, or none, etcd takes zero or empty.
/// An unknown target compares as equal to anything. An unknown result always holds, but a comparison of values still
/// needs a key. Both are put in terms of versions, which are never below 0, and 0 only where there is no key.
impl From<pb::Compare> for Compare {
    fn from(compare: pb::Compare) -> Self {
        let target = WireTarget::try_from(compare.target).ok();
        let result = WireResult::try_from(compare.result).ok();
        let union = compare.target_union;
        let (target, result) = match (target, result) {
            (Some(target), Some(result)) => (compare_target(target, union), result.into()),
            (Some(WireTarget::Value), None) => (CompareTarget::Version(0), CompareResult::Greater),
            (_, None) | (None, Some(WireResult::Equal)) => {
                (CompareTarget::Version(-1), CompareResult::Greater)
            }
            (None, Some(_)) => (CompareTarget::Version(-1), CompareResult::Less),
        };
        Self { range: range_of(compare.key, compare.range_end), target, result }
    }
}

fn compare_target(target: WireTarget, union: Option<TargetUnion>) -> CompareTarget {
    match (target, union) {
        (WireTarget::Version, Some(TargetUnion::Version(version))) => CompareTarget::Version(version),
        (WireTarget::Version, _) => CompareTarget::Version(0),
        (WireTarget::Create, Some(TargetUnion::CreateRevision(revision))) => {
            CompareTarget::Create(Revision::new(revision))
        }
        (WireTarget::Create, _) => CompareTarget::Create(Revision::ZERO),
        (WireTarget::Mod, Some(TargetUnion::ModRevision(revision))) => {
            CompareTarget::Mod(Revision::new(revision))
        }
        (WireTarget::Mod, _) => CompareTarget::Mod(Revision::ZERO),
        (WireTarget::Value, Some(TargetUnion::Value(value))) => CompareTarget::Value(value),
        (WireTarget::Value, _) => CompareTarget::Value(Default::default()),
        (WireTarget::Lease, Some(TargetUnion::Lease(lease))) => CompareTarget::Lease(LeaseId::new(lease)),
        (WireTarget::Lease, _) => CompareTarget::Lease(LeaseId::NONE),
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use bytes::Bytes;
    use leasehold_mvcc::KeyValue;
    use proptest::prelude::*;

    use super::*;

    /// What etcd makes of a comparison with one key, as its answers show.
    fn etcd_holds(compare: &pb::Compare, kv: Option<&KeyValue>) -> bool {
        let absent = KeyValue::default();
        if kv.is_none() && compare.target == WireTarget::Value as i32 {
            return false;
        }
        let kv = kv.unwrap_or(&absent);
        let union = compare.target_union.clone();
        let order = match compare.target {
            0 => kv.version.cmp(&if let Some(TargetUnion::Version(n)) = union { n } else { 0 }),
            1 => kv.create_revision.get().cmp(&if let Some(TargetUnion::CreateRevision(n)) = union {
                n
            } else {
                0
            }),
            2 => {
                kv.mod_revision.get().cmp(&if let Some(TargetUnion::ModRevision(n)) = union { n } else { 0 })
            }
            3 => {
                kv.value.cmp(&if let Some(TargetUnion::Value(value)) = union { value } else { Bytes::new() })
            }
            4 => kv.lease.get().cmp(&if let Some(TargetUnion::Lease(n)) = union { n } else { 0 }),
            _ => Ordering::Equal,
        };
        match compare.result {
            0 => order.is_eq(),
            1 => order.is_gt(),
            2 => order.is_lt(),
            3 => order.is_ne(),
            _ => true,
        }
    }

    fn we_hold(compare: &Compare, kv: Option<&KeyValue>) -> bool {
        let absent = KeyValue::default();
        if kv.is_none() && matches!(compare.target, CompareTarget::Value(_)) {
            return false;
        }
        let kv = kv.unwrap_or(&absent);
        let order = match &compare.target {
            CompareTarget::Version(version) => kv.version.cmp(version),
            CompareTarget::Create(revision) => kv.create_revision.cmp(revision),
            CompareTarget::Mod(revision) => kv.mod_revision.cmp(revision),
            CompareTarget::Value(value) => kv.value.cmp(value),
            CompareTarget::Lease(lease) => kv.lease.cmp(lease),
        };
        match compare.result {
            CompareResult::Equal => order.is_eq(),
            CompareResult::Greater => order.is_gt(),
            CompareResult::Less => order.is_lt(),
            CompareResult::NotEqual => order.is_ne(),
        }
    }

    fn small_value() -> impl Strategy<Value = Bytes> {
        prop_oneof![Just(Bytes::new()), Just(Bytes::from("a")), Just(Bytes::from("b"))]
    }

    prop_compose! {
        fn wire()(
            result in -1..6, target in -1..7, number in -1i64..4, value in small_value(), kind in 0..6,
        ) -> pb::Compare {
            let target_union = match kind {
                0 => Some(TargetUnion::Version(number)),
                1 => Some(TargetUnion::CreateRevision(number)),
                2 => Some(TargetUnion::ModRevision(number)),
                3 => Some(TargetUnion::Value(value)),
                4 => Some(TargetUnion::Lease(number)),
                _ => None,
            };
            pb::Compare { result, target, key: "k".into(), range_end: Bytes::new(), target_union }
        }
    }

    prop_compose! {
        fn kv()(
            version in 1i64..3, create in 1i64..3, last in 1i64..3, lease in 0i64..3, value in small_value(),
        ) -> KeyValue {
            KeyValue {
                key: "k".into(),
                value,
                create_revision: Revision::new(create),
                mod_revision: Revision::new(last),
                version,
                lease: LeaseId::new(lease),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn whatever_the_wire_says_it_means_what_it_means_to_etcd(wire in wire(), kv in prop::option::of(kv())) {
            let ours = Compare::from(wire.clone());
            prop_assert_eq!(we_hold(&ours, kv.as_ref()), etcd_holds(&wire, kv.as_ref()), "{:?}", ours);
        }
    }
}
