module github.com/switchboard-project/switchboard

go 1.26.0
