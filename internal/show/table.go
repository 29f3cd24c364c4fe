// Package show is how resources are shown to people and programs: tables, YAML and JSON. What YAML and JSON show of an
// applied resource can be applied again.
package show

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// column is one column of a table; wide ones are shown where asked for.
type column struct {
	title string
	wide  bool
	cell  func(*api.Resource, time.Time) string
}

// Table writes resources of one kind as a table. now is what ages count to.
func Table(out io.Writer, kind chain.Kind, resources []*api.Resource, wide bool, now time.Time) error {
	var shown []column
	for _, c := range columns[kind] {
		if wide || !c.wide {
			shown = append(shown, c)
		}
	}
	rows := make([][]string, 0, len(resources)+1)
	titles := make([]string, len(shown))
	for i, c := range shown {
		titles[i] = c.title
	}
	rows = append(rows, titles)
	for _, r := range resources {
		row := make([]string, len(shown))
		for i, c := range shown {
			row[i] = orDash(c.cell(r, now))
		}
		rows = append(rows, row)
	}
	return Rows(out, rows)
}

// Rows writes cells in columns two spaces apart.
func Rows(out io.Writer, rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			cell = strings.Join(strings.Fields(cell), " ") // a message of several lines stays in its row
			row[i] = cell
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Age is how long ago something was, in the two largest units that matter.
func Age(then *timestamppb.Timestamp, now time.Time) string {
	if then == nil || then.AsTime().Unix() <= 0 {
		return ""
	}
	return Span(now.Sub(then.AsTime()))
}

// Span is a time in the two largest units that matter; "0s" where it is negative.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// number is a quantity with at most four digits that matter; less than half a thousandth is 0.
func number(value float64) string {
	switch {
	case value >= 1000 && value < 1e12:
		return fmt.Sprintf("%.0f", value)
	case value > -0.0005 && value < 0.0005:
		return "0"
	}
	return fmt.Sprintf("%.4g", value)
}

func yes(value bool) string {
	if value {
		return "yes"
	}
	return "no"
}
