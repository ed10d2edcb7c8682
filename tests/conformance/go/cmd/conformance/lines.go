package main

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "dedupd.example/conformance/gen/dedupd/v1"
)

// From messages to lines.

type lines struct {
	out    *bufio.Writer
	tokens tokens
	names  map[string]string // by a token's bytes: where it was first seen
}

func (l *lines) line(words ...string) {
	fmt.Fprintf(l.out, "  %s\n", strings.Join(words, " "))
}

func without(prefix string, name fmt.Stringer) string {
	return strings.TrimPrefix(name.String(), prefix)
}

// seconds of a duration or a time.
func seconds(span interface {
	GetSeconds() int64
	GetNanos() int32
}) string {
	return fmt.Sprintf("%d.%09d", span.GetSeconds(), span.GetNanos())
}

func degrees(position *pb.LatLng) string {
	return fmt.Sprintf("%.5f,%.5f", position.GetLatitude(), position.GetLongitude())
}

func (l *lines) name(token []byte, verdict string) string {
	l.tokens[verdict] = token
	if _, seen := l.names[string(token)]; !seen {
		l.names[string(token)] = verdict
	}
	return l.names[string(token)]
}

func (l *lines) verdict(verdict *pb.Verdict, name string) {
	words := []string{without("DECISION_", verdict.Decision), without("REASON_", verdict.Reason)}
	if len(verdict.Claim) > 0 {
		words = append(words, "claim="+l.name(verdict.Claim, name))
	}
	if verdict.RetryAfter != nil {
		after := seconds(verdict.RetryAfter)
		// When the breaker probes next depends on when it was asked.
		if verdict.Reason == pb.Reason_REASON_STORE_UNAVAILABLE {
			after = "soon"
		}
		words = append(words, "retry_after="+after)
	}
	if verdict.FirstOccurredAt != nil {
		words = append(words, "first_occurred_at="+seconds(verdict.FirstOccurredAt))
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"degraded", verdict.Degraded}, {"shadow", verdict.Shadow}, {"time_clamped", verdict.TimeClamped}} {
		if flag.set {
			words = append(words, flag.name)
		}
	}
	if verdict.CopyOfIndex != nil {
		words = append(words, fmt.Sprintf("copy_of_index=%d", *verdict.CopyOfIndex))
	}
	if verdict.Detail != "" {
		words = append(words, "detail="+verdict.Detail)
	}
	l.line(words...)
}

func (l *lines) admitted(answer *pb.AdmitResponse, name string) {
	for index, verdict := range answer.Verdicts {
		l.verdict(verdict, fmt.Sprintf("%s.%d", name, index))
	}
	if answer.Lease != nil {
		l.line("lease=" + seconds(answer.Lease))
	}
}

func (l *lines) settled(answer interface{ GetOutcomes() []pb.SettleOutcome }) {
	var words []string
	for _, outcome := range answer.GetOutcomes() {
		words = append(words, without("SETTLE_OUTCOME_", outcome))
	}
	l.line(words...)
}

func (l *lines) reason(reason string, metadata map[string]string) {
	var pairs []string
	for key, value := range metadata {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	l.line(append([]string{"!", reason}, pairs...)...)
}

func (l *lines) error(failure *pb.OperationError) {
	words := []string{"!", fmt.Sprint(failure.Code), failure.Message}
	if failure.RetryAfter != nil {
		words = append(words, "retry_after="+seconds(failure.RetryAfter))
	}
	l.line(words...)
	l.reason(failure.Reason, failure.Metadata)
	if failure.Field != "" {
		l.line("! field " + failure.Field)
	}
}

func (l *lines) refused(err error) {
	failure := status.Convert(err)
	name := code.Code(failure.Code()).String()
	// Whether the client or the service says these first is a matter of microseconds.
	if failure.Code() == codes.Canceled || failure.Code() == codes.DeadlineExceeded {
		l.line("!", name)
		return
	}
	l.line("!", name, failure.Message())
	for _, detail := range failure.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			l.reason(detail.Domain+" "+detail.Reason, detail.Metadata)
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				l.line(fmt.Sprintf("! field %s: %s", violation.Field, violation.Description))
			}
		}
	}
}

func (l *lines) explained(answer *pb.ExplainResponse) {
	l.verdict(answer.Verdict, "none")
	for _, key := range answer.Keys {
		l.line("key=" + key)
	}
	l.line("material=" + answer.Material)
	l.line("contract=" + answer.Contract)
	if answer.OccurredAt != nil {
		l.line("occurred_at=" + seconds(answer.OccurredAt))
	}
	if answer.Position != nil {
		l.line("position="+degrees(answer.Position), "cell="+answer.Cell)
	}
	for _, claim := range answer.Claims {
		words := []string{"claim=" + without("CLAIM_STATE_", claim.State), "key=" + claim.Key}
		if claim.OccurredAt != nil {
			words = append(words, "occurred_at="+seconds(claim.OccurredAt))
		}
		if claim.Position != nil {
			words = append(words, "position="+degrees(claim.Position))
		}
		if claim.Near {
			words = append(words, "near")
		}
		l.line(words...)
	}
}

// counted are those that are not zero.
func (l *lines) counted(counters []*pb.Counter) {
	for _, counter := range counters {
		if counter.Events > 0 {
			decision, reason := without("DECISION_", counter.Decision), without("REASON_", counter.Reason)
			l.line(counter.Namespace, decision, reason, fmt.Sprint(counter.Events))
		}
	}
}

func (l *lines) namespaces(answer *pb.ListNamespacesResponse) {
	for _, namespace := range answer.Namespaces {
		spans := []string{"ttl=" + seconds(namespace.Ttl), "lease=" + seconds(namespace.Lease)}
		l.line(namespace.Name, spans[0], spans[1], namespace.FailureMode, namespace.Mode)
		l.line("  contract=" + namespace.Contract)
		if namespace.Refused != "" {
			l.line("  refused=" + namespace.Refused)
		}
	}
}
