// A member of a consumer group on franz-go; see journal.py for its arguments and for what it writes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type journal struct {
	file   *os.File
	member string
}

// write adds a line in one piece, which the kernel appends whole.
func (j journal) write(event string, partitions ...string) {
	fmt.Fprintf(j.file, "%d %s %s %s\n", time.Now().UnixMilli(), j.member, event, strings.Join(partitions, " "))
}

func (j journal) ownership(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		for _, partitions := range changed {
			j.write(event, strings.Fields(strings.Trim(fmt.Sprint(partitions), "[]"))...)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	address, group, topic, path, member := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	settings := map[string]string{}
	for _, setting := range os.Args[6:] {
		key, value, _ := strings.Cut(setting, "=")
		settings[key] = value
	}
	j := journal{must(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)), member}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	options := []kgo.Opt{
		kgo.SeedBrokers(address),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(j.ownership("gain")),
		kgo.OnPartitionsRevoked(j.ownership("lose")),
		kgo.OnPartitionsLost(j.ownership("lose")),
	}
	if timeout, found := settings["session.timeout"]; found {
		options = append(options, kgo.SessionTimeout(must(time.ParseDuration(timeout))))
		options = append(options, kgo.HeartbeatInterval(500*time.Millisecond))
	}
	if settings["protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	client := must(kgo.NewClient(options...))
	for stopped.Err() == nil {
		fetches := client.PollFetches(stopped)
		fetches.EachError(func(_ string, _ int32, err error) {
			if stopped.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
		records := fetches.Records()
		for _, record := range records {
			j.write("saw", fmt.Sprint(record.Partition), fmt.Sprint(record.Offset))
		}
		if err := client.CommitRecords(context.Background(), records...); err != nil {
			fmt.Fprintln(os.Stderr, err) // its partitions may have moved on; their new owner reads again
		}
	}
	client.Close()
}
