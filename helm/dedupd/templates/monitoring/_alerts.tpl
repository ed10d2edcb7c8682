{{/* `namespace` is Kubernetes'; a Prometheus that sets it calls dedupd's own `exported_namespace`. */}}
{{- define "dedupd.alerts" -}}
{{- $limit := .Values.prometheusRule.thresholds -}}
dedupd:
  - record: dedupd:events:rate10m
    expr: sum by (namespace, exported_namespace) (rate(dedupd_decisions_total[10m]))
  - record: dedupd:suppressed:ratio_rate10m
    expr: |-
      sum by (namespace, exported_namespace) (rate(dedupd_decisions_total{decision="SUPPRESS"}[10m]))
        / (dedupd:events:rate10m > 0)
  - record: dedupd:redeliveries:rate5m
    expr: sum by (namespace, exported_namespace) (rate(dedupd_decisions_total{reason="REDELIVERY"}[5m]))
  - alert: DedupdFailOpen
    expr: sum by (namespace, exported_namespace, reason) (rate(dedupd_decisions_total{reason=~"FAIL_OPEN|FALLBACK"}[5m])) > 0
    labels: { severity: warning }
    annotations:
      summary: Events are admitted without a look at the shared store
      description: >-
        {{`In {{ $labels.namespace }} dedupd admits {{ $value | humanize }} events a second of {{ $labels.exported_namespace }} as {{ $labels.reason }}: copies among them are processed twice. Look for the store's outage (DedupdBreakerTripped, dedupd doctor).`}}
  - alert: DedupdBreakerTripped
    expr: count by (namespace) (dedupd_breaker_state{state="admitting"} == 0) > 0
    for: 1m
    labels: { severity: critical }
    annotations:
      summary: The store is away
      description: >-
        {{`{{ $value }} instances in {{ $labels.namespace }} have not reached their store for a minute and answer by the failure mode of each namespace. Run dedupd doctor with their store.`}}
  - alert: DedupdSuppressionRatioChanged
    expr: |-
      abs(dedupd:suppressed:ratio_rate10m - (dedupd:suppressed:ratio_rate10m offset 1h)) > {{ $limit.suppressionRatioChange }}
        and dedupd:events:rate10m > {{ $limit.minEventsPerSecond }}
    for: 5m
    labels: { severity: warning }
    annotations:
      summary: The share of suppressed events has jumped
      description: >-
        {{`The share of suppressed events of {{ $labels.exported_namespace }} in {{ $labels.namespace }} has changed by {{ $value | humanizePercentage }} within an hour. More: a source repeats itself, or a window is too wide. Less: keys have changed, or the store has forgotten claims.`}}
  - alert: DedupdRedeliveriesRise
    expr: |-
      dedupd:redeliveries:rate5m > {{ $limit.redeliveryFactor }} * (dedupd:redeliveries:rate5m offset 1h)
        and dedupd:redeliveries:rate5m > {{ $limit.minEventsPerSecond }}
    for: 5m
    labels: { severity: warning }
    annotations:
      summary: A retry storm upstream begins
      description: >-
        {{`{{ $value | humanize }} redeliveries a second of {{ $labels.exported_namespace }} in {{ $labels.namespace }}, several times as many as an hour ago: a producer's acknowledgements are lost, or a consumer rebalances again and again. dedupd suppresses them; look at the broker.`}}
  - alert: DedupdSubjectStuck
    expr: |-
      max by (namespace, exported_namespace) (
        dedupd_noisy_subject_suppressed / (dedupd_noisy_subject_events > {{ $limit.stuckSubjectMinEvents }})
      ) >= {{ $limit.stuckSubjectRatio }}
    for: 10m
    labels: { severity: info }
    annotations:
      summary: A device repeats itself
      description: >-
        {{`{{ $value | humanizePercentage }} of what one subject of {{ $labels.exported_namespace }} in {{ $labels.namespace }} sends is suppressed. InspectService.ListNoisySubjects names it.`}}
  - alert: DedupdContractMismatch
    expr: |-
      sum by (namespace) (dedupd_namespace_refused) > 0
        or sum by (namespace) (increase(dedupd_contract_mismatches_total[15m])) > 0
    labels: { severity: critical }
    annotations:
      summary: Instances disagree about keys
      description: >-
        {{`Instances in {{ $labels.namespace }} found another contract in the store: a width, resolution, digest, layout or prefix has changed, and claims made under the other are not found. Change it back, or see "The contract" in docs/operation.md.`}}
  - alert: DedupdDoubleAdmissions
    expr: sum by (namespace, exported_namespace) (increase(dedupd_double_admissions_total[15m])) > 0
    labels: { severity: warning }
    annotations:
      summary: Events were processed twice
      description: >-
        {{`{{ $value | humanize }} events of {{ $labels.exported_namespace }} in {{ $labels.namespace }} that an outage admitted had been admitted elsewhere, too.`}}
  - alert: DedupdLocalClaimsStay
    expr: |-
      min_over_time(dedupd_local_claims[10m]) > 0
        and on (namespace, pod) min_over_time(dedupd_breaker_state{state="admitting"}[10m]) == 1
    labels: { severity: warning }
    annotations:
      summary: Claims of an outage are not written back
      description: >-
        {{`{{ $labels.pod }} in {{ $labels.namespace }} has kept {{ $value }} claims for 10 minutes although its store answers: copies that reach other instances are admitted. Look at its logs and at dedupd_store_errors_total.`}}
  - alert: DedupdGiveBacksAbandoned
    expr: sum by (namespace) (increase(dedupd_give_backs_abandoned_total[15m])) > 0
    labels: { severity: warning }
    annotations:
      summary: Claims of cancelled calls stay behind
      description: >-
        {{`{{ $value | humanize }} claims in {{ $labels.namespace }} could not be given back: their events wait for the lease or, without one, for the TTL.`}}
  - alert: DedupdStoreFinding
    expr: max by (namespace, check, severity) (dedupd_store_findings{severity=~"failure|warning"}) > 0
    for: 5m
    labels: { severity: warning }
    annotations:
      summary: Something is wrong with the store
      description: >-
        {{`Instances in {{ $labels.namespace }} find a {{ $labels.severity }} ({{ $labels.check }}). dedupd doctor says what to do.`}}
  - alert: DedupdStoreReplaced
    expr: max by (namespace) (increase(dedupd_store_epoch_changes_total[15m])) > 0
    labels: { severity: info }
    annotations:
      summary: A server of the store was started anew or replaced
      description: >-
        {{`Claims that the store of {{ $labels.namespace }} had not kept are admitted again.`}}
{{- if eq .Values.mode "sidecar" }}
dedupd-injector:
  - alert: DedupdInjectorDown
    expr: absent(dedupd_injector_certificate_not_after_timestamp_seconds)
    for: 5m
    labels: { severity: critical }
    annotations:
      summary: No injector answers
      description: >-
        Pods that ask for a dedupd are not created, or start without one (injector.failurePolicy).
  - alert: DedupdInjectorRefusesPods
    expr: sum by (namespace, reason) (increase(dedupd_injector_admissions_total{outcome=~"refused|malformed|failed"}[15m])) > 0
    labels: { severity: warning }
    annotations:
      summary: Pods are refused
      description: >-
        {{`The injector in {{ $labels.namespace }} refused {{ $value | humanize }} pods ({{ $labels.reason }}); the events of their owners say why.`}}
  - alert: DedupdInjectorConfigRefused
    expr: sum by (namespace) (increase(dedupd_injector_config_reloads_total{outcome="refused"}[15m])) > 0
    labels: { severity: warning }
    annotations:
      summary: The injector works with an old configuration
      description: >-
        {{`An injector in {{ $labels.namespace }} could not read its new configuration; its logs say why.`}}
  - alert: DedupdInjectorCertificateExpires
    expr: |-
      min by (namespace) (dedupd_injector_certificate_not_after_timestamp_seconds) - time() < {{ $limit.certificateRemainingHours }} * 3600
        or sum by (namespace) (increase(dedupd_injector_certificate_errors_total[15m])) > 0
    for: 5m
    labels: { severity: critical }
    annotations:
      summary: The injector's certificate is not renewed
      description: >-
        {{`The injector in {{ $labels.namespace }} could not renew its certificate. Once that has ended, pods that ask for a dedupd are treated as if no injector answered.`}}
{{- end }}
{{- end }}
