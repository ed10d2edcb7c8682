//! Metric families in the words of this project: a name, a help line, rows of labels and values.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};

/// Writes whole families. Suffixes (`_total`, `_info`, units) are added by what is written.
#[derive(Debug)]
pub(crate) struct Families<'e>(pub(crate) DescriptorEncoder<'e>);

impl Families<'_> {
    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(crate) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    pub(crate) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(crate) fn gauge_in(
        &mut self,
        name: &str,
        unit: Unit,
        help: &str,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, Some(&unit), MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(crate) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    pub(crate) fn infos<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = L>,
    ) -> fmt::Result {
        let mut metric = self
            .0
            .encode_descriptor(name, help, None, MetricType::Info)?;
        for labels in rows {
            metric.encode_info(&labels)?;
        }
        Ok(())
    }

    /// `rows` hold one more count than there are bounds, and a sum; all in seconds.
    pub(crate) fn histograms<L: EncodeLabelSet, const BUCKETS: usize>(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[f64],
        rows: impl IntoIterator<Item = (L, ([u64; BUCKETS], f64))>,
    ) -> fmt::Result {
        debug_assert_eq!(bounds.len() + 1, BUCKETS);
        let unit = Unit::Seconds;
        let mut metric =
            self.0
                .encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
        for (labels, (counts, sum)) in rows {
            let bounds = bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            metric
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)?;
        }
        Ok(())
    }
}
