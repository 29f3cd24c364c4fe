package bus

import (
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// platformServices are those that only controllers may ask, here or at another site: they give out the platform's secrets.
const platformServices = "platform.>"

// readingOf are the subjects by which a bucket can be read.
func readingOf(bucket string) []string {
	stream := "KV_" + bucket
	return []string{
		"$JS.API.DIRECT.GET." + stream, "$JS.API.DIRECT.GET." + stream + ".>", "$JS.API.STREAM.MSG.GET." + stream,
		"$JS.API.CONSUMER.CREATE." + stream, "$JS.API.CONSUMER.CREATE." + stream + ".>", "$JS.API.CONSUMER.DURABLE.CREATE." + stream + ".>",
		"$JS.API.CONSUMER.MSG.NEXT." + stream + ".>", "$JS.API.STREAM.SNAPSHOT." + stream,
		"$JS.API.STREAM.UPDATE." + stream, "$JS.API.STREAM.RESTORE." + stream,
	}
}

// permissions says what an agent's connection may publish and subscribe to. Nothing else passes.
func permissions(kind Kind, name string) *server.Permissions {
	inbox := inboxPrefix(kind, name) + ".>"
	// A reply goes where the request said; it may follow its request by at most this long.
	replies := &server.ResponsePermission{MaxMsgs: 1, Expires: 2 * time.Minute}
	switch kind {
	case kindSite:
		return nil
	case KindController:
		return &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{">"}, Deny: []string{"$KV." + viewBucket + ".>", "$SYS.>", "_INBOX.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{inbox, "serve.>"}},
			Response:  replies,
		}
	case KindService:
		return &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: slices.Concat([]string{"$KV." + viewBucket + ".>",
				"$KV." + rulesBucket + ".>", "$KV." + globalBucket + ".>", "$KV." + ModelBucket + ".>", "$SYS.>", "_INBOX.>",
				"call.*." + platformServices, "serve." + platformServices},
				readingOf(rulesBucket), readingOf(globalBucket))},
			Subscribe: &server.SubjectPermission{Allow: []string{inbox, "serve.>"}},
			Response:  replies,
		}
	case KindForwarder:
		return &server.Permissions{
			Publish: &server.SubjectPermission{Allow: append(following(rulesBucket),
				"$JS.API.STREAM.INFO.KV_"+statusBucket,
				"$KV."+statusBucket+"."+name, "$KV."+statusBucket+"."+name+".>",
				"presence.forwarder."+name,
			)},
			Subscribe: &server.SubjectPermission{Allow: []string{inbox, "serve.forwarder." + name + ".>"}},
			Response:  replies,
		}
	case KindOptimiser:
		return &server.Permissions{
			// Several workers share the credentials "default"; each has a name of its own.
			Publish:   &server.SubjectPermission{Allow: append(following(ModelBucket), "presence.optimiser.*")},
			Subscribe: &server.SubjectPermission{Allow: []string{inbox, "serve.te.*"}},
			Response:  replies,
		}
	}
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Deny: []string{">"}},
		Subscribe: &server.SubjectPermission{Deny: []string{">"}},
	}
}

// following is what an agent publishes to read a bucket and follow its changes.
func following(bucket string) []string {
	stream := "KV_" + bucket
	return []string{
		"$JS.API.INFO",
		"$JS.API.STREAM.INFO." + stream,
		"$JS.API.CONSUMER.CREATE." + stream, "$JS.API.CONSUMER.CREATE." + stream + ".>",
		"$JS.API.CONSUMER.INFO." + stream + ".>", "$JS.API.CONSUMER.DELETE." + stream + ".>",
		"$JS.API.STREAM.MSG.GET." + stream, "$JS.API.DIRECT.GET." + stream, "$JS.API.DIRECT.GET." + stream + ".>",
		"$JS.ACK." + stream + ".>", "$JS.FC." + stream + ".>",
	}
}
