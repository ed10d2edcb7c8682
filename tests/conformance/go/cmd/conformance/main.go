// Command conformance takes the steps of a script against a running dedupd and prints what was
// answered. See ../../../README.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "dedupd.example/conformance/gen/dedupd/v1"
)

const timeout = 30 * time.Second

type place struct {
	dedup   pb.DedupServiceClient
	inspect pb.InspectServiceClient
	health  grpc_health_v1.HealthClient
}

func dial(target string) place {
	channel, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return place{
		dedup:   pb.NewDedupServiceClient(channel),
		inspect: pb.NewInspectServiceClient(channel),
		health:  grpc_health_v1.NewHealthClient(channel),
	}
}

func main() {
	places := map[string]place{
		"":       dial(os.Getenv("DEDUPD_ADDRESS")),
		"socket": dial("unix:" + os.Getenv("DEDUPD_SOCKET")),
		"away":   dial(os.Getenv("DEDUPD_AWAY")),
	}
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	lines := &lines{out: bufio.NewWriter(os.Stdout), tokens: tokens{}, names: map[string]string{}}
	defer lines.out.Flush()
	for index, written := range bytes.Split(bytes.TrimSpace(script), []byte("\n")) {
		var step step
		if err := json.Unmarshal(written, &step); err != nil {
			log.Fatal(err)
		}
		number := strconv.Itoa(index + 1)
		fmt.Fprintln(lines.out, strings.TrimSpace(number+" "+step.Do+" "+step.Namespace))
		if err := places[step.Through].take(number, &step, lines); err != nil {
			lines.refused(err)
		}
	}
}

func (p place) take(number string, step *step, lines *lines) error {
	limit := timeout
	if step.TimeoutMilliseconds > 0 {
		limit = time.Duration(step.TimeoutMilliseconds) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	switch step.Do {
	case "admit":
		answer, err := p.dedup.Admit(ctx, step.admitRequest())
		return then(answer, err, func(answer *pb.AdmitResponse) { lines.admitted(answer, number) })
	case "confirm":
		answer, err := p.dedup.Confirm(ctx, &pb.ConfirmRequest{Claims: lines.tokens.named(step.Claims)})
		return then(answer, err, func(answer *pb.ConfirmResponse) { lines.settled(answer) })
	case "release":
		answer, err := p.dedup.Release(ctx, &pb.ReleaseRequest{Claims: lines.tokens.named(step.Claims)})
		return then(answer, err, func(answer *pb.ReleaseResponse) { lines.settled(answer) })
	case "renew":
		answer, err := p.dedup.Renew(ctx, &pb.RenewRequest{Claims: lines.tokens.named(step.Claims)})
		return then(answer, err, func(answer *pb.RenewResponse) { lines.settled(answer) })
	case "stream":
		return p.converse(ctx, cancel, number, step, lines)
	case "watch":
		return p.watch(ctx, cancel, step, lines)
	case "health":
		answer, err := p.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: step.Service})
		return then(answer, err, func(answer *grpc_health_v1.HealthCheckResponse) { lines.line(answer.Status.String()) })
	case "sleep":
		time.Sleep(time.Duration(step.Milliseconds) * time.Millisecond)
		return nil
	default:
		return p.look(ctx, step, lines)
	}
}

func then[Answer any](answer Answer, err error, print func(Answer)) error {
	if err == nil {
		print(answer)
	}
	return err
}

func (p place) look(ctx context.Context, step *step, lines *lines) error {
	namespace, event := step.Namespace, step.Event.message()
	switch step.Do {
	case "explain":
		answer, err := p.inspect.Explain(ctx, &pb.ExplainRequest{Namespace: namespace, Event: event})
		return then(answer, err, lines.explained)
	case "forget":
		answer, err := p.inspect.Forget(ctx, &pb.ForgetRequest{Namespace: namespace, Event: event})
		return then(answer, err, func(answer *pb.ForgetResponse) { lines.line(append([]string{"forgotten"}, answer.Keys...)...) })
	case "counters":
		answer, err := p.inspect.GetCounters(ctx, &pb.GetCountersRequest{Namespace: namespace})
		return then(answer, err, func(answer *pb.GetCountersResponse) { lines.counted(answer.Counters) })
	case "namespaces":
		answer, err := p.inspect.ListNamespaces(ctx, &pb.ListNamespacesRequest{})
		return then(answer, err, lines.namespaces)
	case "noisy":
		request := &pb.ListNoisySubjectsRequest{Namespace: namespace, Limit: step.Limit}
		answer, err := p.inspect.ListNoisySubjects(ctx, request)
		return then(answer, err, func(answer *pb.ListNoisySubjectsResponse) {
			words := []string{"noisy"}
			for _, subject := range answer.Subjects {
				words = append(words, subject.Id)
			}
			lines.line(words...)
		})
	}
	panic(step.Do)
}

func (p place) converse(ctx context.Context, cancel func(), number string, step *step, lines *lines) error {
	stream, err := p.dedup.Stream(ctx)
	if err != nil {
		return err
	}
	if step.Pipelined {
		for _, operation := range step.Operations {
			if err := stream.Send(operation.streamRequest(lines.tokens)); err != nil {
				return err
			}
		}
	}
	for index, operation := range step.Operations {
		if !step.Pipelined {
			if err := stream.Send(operation.streamRequest(lines.tokens)); err != nil {
				return err
			}
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		lines.line(fmt.Sprintf("batch %d", answer.BatchId))
		switch result := answer.Result.(type) {
		case *pb.StreamResponse_Admit:
			lines.admitted(result.Admit, fmt.Sprintf("%s.%d", number, index))
		case *pb.StreamResponse_Confirm:
			lines.settled(result.Confirm)
		case *pb.StreamResponse_Release:
			lines.settled(result.Release)
		case *pb.StreamResponse_Renew:
			lines.settled(result.Renew)
		case *pb.StreamResponse_Error:
			lines.error(result.Error)
		}
	}
	if step.Cancel {
		cancel()
	} else if step.TimeoutMilliseconds == 0 {
		if err := stream.CloseSend(); err != nil {
			return err
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		return err
	}
	lines.line("end")
	return nil
}

func (p place) watch(ctx context.Context, cancel func(), step *step, lines *lines) error {
	interval := durationpb.New(time.Duration(step.IntervalMilliseconds) * time.Millisecond)
	stream, err := p.inspect.WatchCounters(ctx, &pb.WatchCountersRequest{Namespace: step.Namespace, Interval: interval})
	if err != nil {
		return err
	}
	for range step.Looks {
		look, err := stream.Recv()
		if err != nil {
			return err
		}
		lines.counted(look.Counters)
	}
	if step.TimeoutMilliseconds == 0 {
		cancel()
	}
	_, err = stream.Recv()
	return err
}
