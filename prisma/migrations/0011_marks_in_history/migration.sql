-- The history of states also tells when an address began and ceased to bounce, and a profile to be marked as one that
-- takes our email for spam. Marks that are older than this are its first rows.
insert into subscription_history (workspace_id, subject_kind, subject, subscription, to_state, changed_at, request_id)
select workspace_id, 'email', email, 'hard_bounce', 'hard_bounced', hard_bounced_at, 'unknown'
from email_addresses where hard_bounced_at is not null
union all
select workspace_id, 'profile', id::text, 'spam', 'marked_as_spam', marked_email_as_spam_at, 'unknown'
from profiles where marked_email_as_spam_at is not null;
