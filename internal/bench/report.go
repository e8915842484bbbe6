package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// row is one line of the table: a measurement, what it is compared with, and the bound that it is held to.
type row struct {
	Group string  `json:"group"`
	Text  string  `json:"text"`
	Value float64 `json:"value"` // median
	Unit  string  `json:"unit"`
	With  string  `json:"with,omitempty"`  // what it is compared with
	Other float64 `json:"other,omitempty"` // median of that
	Ratio float64 `json:"ratio,omitempty"` // median of the rounds' ratios
	Bound string  `json:"bound,omitempty"`
	OK    *bool   `json:"ok,omitempty"`
}

// want describes a row before it is measured. num and den name samples; a bound is on their ratio, or on num where there is no den.
type want struct {
	group, text, num, unit, with, den string
	atLeast, atMost                   float64 // 0 is none
	exactly                           bool    // atMost may be 0, and the value must be it or less
}

// in puts rows into a section of the table.
func in(group string, rows ...want) []want {
	for i := range rows {
		rows[i].group = group
	}
	return rows
}

func wants() []want {
	return slices.Concat(
		in("Floors",
			want{text: "memcpy, 32 MiB buffers, one core", num: "memcpy", unit: "GB/s"},
			want{text: "page cache of the disk's file system, large folios, read", num: "ext4 read", unit: "GB/s"},
			want{text: "the same, mapped before", num: "ext4 mmap", unit: "GB/s"},
			want{text: "one raw socket", num: "socket", unit: "GB/s"},
		),
		in("Cold, 20 ms and 50 MB/s a connection", coldWants()...),
		in("Cold sequential read, other servers", shapeWants()...),
		in("Random whole experts, cold, 20 ms and 50 MB/s a connection", expertWants()...),
		kernelWants(),
		in("From the disk cache, its files in the page cache",
			want{text: "read, the mount's page cache empty, no passthrough", num: "warm disk", unit: "GB/s", with: "a plain FUSE server of as large a file", den: "warm disk plain", atLeast: 0.9},
			want{text: "the same", num: "warm disk ratio", unit: "of ext4", with: "the plain server's", den: "warm disk plain ratio"},
			want{text: "read again, from the mount's page cache", num: "warm memory", unit: "GB/s", with: "the plain server's", den: "warm memory plain", atLeast: 0.9},
			want{text: "the same", num: "warm memory ratio", unit: "of ext4", with: "the plain server's", den: "warm memory plain ratio"},
			want{text: "mapped, from the mount's page cache", num: "warm memory mmap", unit: "GB/s"},
			want{text: "read, passthrough", num: "passthrough read ratio", unit: "of ext4", atLeast: 0.95},
			want{text: "mapped, passthrough", num: "passthrough mmap ratio", unit: "of ext4", atLeast: 0.95},
			want{text: "BF16 view of FP8 blocks, sequential", num: "view bf16", unit: "GB/s", with: "release/ of the same mount", den: "view raw", atLeast: 0.8},
		),
		in("BF16 view of tensors packed by columns (GPTQ), 0 ms, no disk cache, twice the largest tensor as memory",
			want{text: "sequential read", num: "packed read", unit: "GB/s"},
			want{text: "bytes fetched of the packed ones", num: "packed fetched", unit: "x", atMost: 1.1},
		),
		in("2,000 random 4 KiB faults, MADV_RANDOM, 0 ms",
			want{text: "cold, median", num: "faults cold", unit: "us"},
			want{text: "cold, 99 of 100", num: "faults cold p99", unit: "us"},
			want{text: "again, median", num: "faults warm", unit: "us", with: "ext4", den: "faults ext4"},
		),
		in("Second mount, 287,119 tensors in 213 files",
			want{text: "views ready", num: "second mount ready", unit: "s", atMost: 0.5},
			want{text: "requests, the revision check among them", num: "second mount requests", atMost: 1},
			want{text: "requests with --offline", num: "offline mount requests", exactly: true},
			want{text: "all 213 shards open: memory", num: "open shards memory", unit: "MB", atMost: 1},
		),
		in("Memory", want{text: "64 streams on a budget of 8 MiB end", num: "64 streams", unit: "s"}),
	)
}

func coldWants() []want {
	out := []want{
		{text: "sequential read, default read-ahead", num: "sequential weightfs", unit: "GB/s", with: "range client", den: "sequential client", atLeast: 0.9},
		{text: "the same with --memory 512MiB, 512 MiB of it", num: "sequential 512 MiB", unit: "GB/s", with: "range client", den: "sequential client"},
		{text: "the same with --memory 64MiB, 64 MiB of it", num: "sequential 64 MiB", unit: "GB/s", with: "range client", den: "sequential client"},
		{text: "mapped, in the order of tensors", num: "sequential mmap", unit: "GB/s", with: "range client", den: "sequential client", atLeast: 0.8},
		{text: "4 threads take turns, 4 MiB each, one descriptor", num: "sequential turns", unit: "GB/s", with: "range client", den: "sequential client"},
		{text: "a page elsewhere while the file is read, mapped", num: "demand busy", unit: "s", with: "alone", den: "demand alone"},
	}
	for _, r := range mountedRivals() {
		out = append(out, want{text: "sequential read", num: "sequential weightfs", unit: "GB/s", with: r.name, den: "rival " + r.name + " sequential", atLeast: 3})
	}
	out = append(out,
		want{text: "sequential read", num: "sequential weightfs", unit: "GB/s", with: "huggingface_hub, then read", den: "rival huggingface_hub sequential"},
		want{text: "random tensors of 0.9 MB, mapped", num: "tensors weightfs", unit: "s", with: "range client", den: "tensors client"},
	)
	for _, r := range mountedRivals() {
		out = append(out, want{text: "random tensors of 0.9 MB, mapped", num: "tensors weightfs", unit: "s", with: r.name, den: "rival " + r.name + " tensors"})
	}
	return append(out,
		want{text: "8 processes read one file", num: "processes weightfs", unit: "s", with: "range client, once", den: "processes client"},
		want{text: "the same: bytes fetched of those read", num: "processes fetched", unit: "x", atMost: 1.01},
		want{text: "64 parallel 1 MiB preads", num: "preads weightfs", unit: "s", with: "range client", den: "preads client"},
		want{text: "the same: bytes fetched of those read, tensors begun included", num: "preads fetched", unit: "x"},
		want{text: "the resident part alone", num: "resident weightfs", unit: "GB/s", with: "range client", den: "resident client"},
		want{text: "the same: bytes fetched of those read", num: "resident fetched", unit: "x"},
		want{text: "weightfs cp of the BF16 view, from start to end", num: "cp weightfs", unit: "s", with: "range client, then writing as many bytes", den: "cp floor"},
	)
}

func shapeWants() (out []want) {
	for _, s := range otherShapes() {
		out = append(out, want{text: s.String(), num: "shape " + s.String() + " weightfs", unit: "GB/s", with: "range client", den: "shape " + s.String() + " client"})
	}
	return out
}

func expertWants() (out []want) {
	for _, r := range []struct{ name, text string }{{fp8, "2.75 MB, FP8"}, {mxfp4, "17.5 MB, MXFP4"}} {
		for _, at := range expertPlaces() {
			key, text, exact := "experts "+r.name+" "+at.key, r.text, ""
			if at.open {
				text, exact = text+", in expert_blocks.bin", ", O_DIRECT"
			}
			for _, way := range expertReads() {
				out = append(out, want{text: text + ", " + way.name, num: key + way.name, unit: "s", with: "range client, same spans", den: "experts " + r.name + " client", atMost: 1.3})
			}
			fetched := want{text: text + ": bytes fetched of the block's", num: key + "fetched", unit: "x"}
			if r.name == mxfp4 {
				fetched.atMost = 1.05
			}
			out = append(out, want{text: text + exact + ": requests beyond explain's", num: key + "requests", exactly: true})
			if at.open {
				out = append(out, want{text: text + ": requests of the kernel's read-ahead, an expert", num: key + "requests of the kernel's"})
			}
			out = append(out, fetched)
		}
	}
	return out
}

// row is the line of a want, or false if it was not measured.
func (b *bench) row(w want) (row, bool) {
	num, den := b.samples[w.num], b.samples[w.den]
	if len(num) == 0 || w.den != "" && len(den) == 0 {
		return row{}, false
	}
	r := row{Group: w.group, Text: w.text, Value: median(num), Unit: w.unit, With: w.with}
	judged := r.Value
	if w.den != "" {
		var ratios []float64
		for i := range num {
			ratios = append(ratios, num[i]/den[min(i, len(den)-1)])
		}
		r.Other, r.Ratio = median(den), median(ratios)
		judged = r.Ratio
	}
	var ok bool
	switch {
	case w.atLeast > 0:
		r.Bound, ok = fmt.Sprintf(">= %.3g", w.atLeast), judged >= w.atLeast
	case w.atMost > 0 || w.exactly:
		r.Bound, ok = fmt.Sprintf("<= %.3g", w.atMost), judged <= w.atMost
	default:
		return r, true
	}
	r.OK = &ok
	return r, true
}

// rows are the lines of the table. What a whole run did not measure is noted, but for what is compared with rivals, which have notes of their own.
func (b *bench) rows() []row {
	var out []row
	for _, w := range wants() {
		if r, ok := b.row(w); ok {
			out = append(out, r)
		} else if b.opt.only == "" && !strings.HasPrefix(w.den, "rival ") {
			b.notes[w.group+": "+w.text] = "no samples"
		}
	}
	return append(out, b.memoryRows()...)
}

// memoryRows are the most resident memory of daemons beside their budgets, by workload.
func (b *bench) memoryRows() []row {
	var labels []string
	most := map[string]peak{}
	for _, p := range b.peaks {
		if _, seen := most[p.Workload]; !seen {
			labels = append(labels, p.Workload)
		}
		if p.RSS > most[p.Workload].RSS {
			most[p.Workload] = p
		}
	}
	var out []row
	for _, l := range labels {
		p := most[l]
		ok := p.RSS <= p.Budget+100e6
		out = append(out, row{Group: "Memory", Text: "most resident memory: " + l, Value: float64(p.RSS) / mb, Unit: "MB",
			Bound: fmt.Sprintf("<= %.0f", (float64(p.Budget)+100e6)/mb), OK: &ok})
	}
	return out
}

func (b *bench) report() error {
	rows := b.rows()
	table := markdown(rows, b.notes)
	fmt.Print(table)
	if b.opt.json != "" {
		all := map[string]any{"machine": machine(), "rounds": b.opt.rounds, "quick": b.opt.quick, "rows": rows, "samples": b.samples, "peaks": b.peaks, "notes": b.notes}
		text, err := json.MarshalIndent(all, "", "  ")
		if err == nil {
			err = os.WriteFile(b.opt.json, append(text, '\n'), 0o666)
		}
		if err != nil {
			return err
		}
	}
	if b.opt.markdown != "" && (b.opt.quick || b.opt.only != "") {
		b.note("%s stays as it is: it has whole runs only", b.opt.markdown)
	} else if b.opt.markdown != "" {
		about := fmt.Sprintf("%s; %d rounds in %.0f s; %s.\n\n", machine(), b.opt.rounds, time.Since(b.started).Seconds(), time.Now().UTC().Format(time.DateOnly))
		return between(b.opt.markdown, about+table)
	}
	return nil
}

// markdown is the table as it stands in docs/performance.md.
func markdown(rows []row, notes map[string]string) string {
	var out strings.Builder
	group := ""
	for _, r := range rows {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&out, "\n**%s**\n\n| what | measured | compared with | ratio | bound | |\n|---|---|---|---|---|---|\n", group)
		}
		other, ratio, verdict := "", "", ""
		if r.With != "" {
			other, ratio = r.With+" "+number(r.Other, r.Unit), fmt.Sprintf("%.2f", r.Ratio)
		}
		if r.OK != nil {
			verdict = "MISS"
			if *r.OK {
				verdict = "ok"
			}
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", r.Text, number(r.Value, r.Unit), other, ratio, r.Bound, verdict)
	}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		first, _, _ := strings.Cut(notes[name], "\n")
		fmt.Fprintf(&out, "\nNot measured: %s (%s)\n", name, first)
	}
	return strings.TrimPrefix(out.String(), "\n")
}

func number(v float64, unit string) string {
	if unit == "s" && v < 1 {
		v, unit = v*1000, "ms"
	}
	return strings.TrimSpace(fmt.Sprintf("%.3g %s", v, unit))
}

const begin, end = "<!-- measured: make bench writes what follows -->", "<!-- end of what make bench writes -->"

// between replaces what stands between the markers of a file.
func between(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(old, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table between %q and %q", path, begin, end)
	}
	out := fmt.Sprintf("%s%s\n\n%s\n%s%s", head, begin, text, end, tail)
	return os.WriteFile(path, []byte(out), 0o666)
}

// machine is what a reader of the numbers must know of the machine.
func machine() string {
	kernel, _ := exec.Command("uname", "-r").Output()
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s, Linux %s, %s", runtime.NumCPU(), model, strings.TrimSpace(string(kernel)), runtime.Version())
}
